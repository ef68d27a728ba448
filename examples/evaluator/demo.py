"""What `evaluator` does, by example: PYTHONPATH=build python3 examples/evaluator/demo.py"""

import evaluator


def power(base, exponent, *, exact=True):
    result = 1
    for _ in range(exponent):
        result *= base
    return result


def square(base, exponent, exact):
    return base * base


evaluator.optimize(power, square, types={"base": int}, values={"exponent": 2})
evaluator.enable()
print("frames are read by:", evaluator.provider())
for arguments in ((3, 2), (3, 3), (3.0, 2)):
    print(f"power{arguments} = {power(*arguments)}")
hits, misses = evaluator.counts(power)
print(f"hits {hits}, misses {misses}")
evaluator.disable()
