"""A client's part of a round: from the bytes it is sent to the bytes it sends back."""
