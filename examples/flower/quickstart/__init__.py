"""An ordinary Flower app with FedDST in it."""
