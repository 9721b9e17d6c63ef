from feddst.runtime.wording import forward_pass, size


def test_a_forward_pass_is_told_in_the_unit_of_the_dense_one() -> None:
    assert forward_pass(1_705_494, 4_586_640) == "1.71 MFLOPs for one input; 4.59 if it were dense"
    assert forward_pass(4_586_640, 4_586_640) == "4.59 MFLOPs for one input"
    assert forward_pass(20_000_000, 1_110_000_000) == "0.02 GFLOPs for one input; 1.11 if it were dense"
    assert forward_pass(50, 640) == "0.05 kFLOPs for one input; 0.64 if it were dense"


def test_of_older_runs_and_models_without_weights_there_is_nothing_to_tell() -> None:
    assert forward_pass(None, None) == forward_pass(0, 0) == ""


def test_little_traffic_is_more_than_none() -> None:
    assert size(0) == "0.0 MiB"
    assert size(8 * 1536) == "1.5 KiB"
    assert size(8 * 2**20 / 10) == "0.1 MiB"
    assert size(8 * 1234 * 2**20) == "1,234.0 MiB"
