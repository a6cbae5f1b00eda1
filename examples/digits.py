"""Two in a hundred points are enough: handwritten digits as covariance matrices.

Half of the 1797 digits that ship with scikit-learn are learned from, and the other half is classified: by all training
points, by as many random ones as prototypes, and by the prototypes that SCC learns.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import knnpress as kp

data = kp.datasets.load_digits_covariances()  # X (1797, 11, 11)
X, y, X_test, y_test = data.X[::2], data.y[::2], data.X[1::2], data.y[1::2]

full = kp.PrototypeClassifier("jbld").fit(X, y)
drawn = kp.PrototypeClassifier("jbld", kp.compression.Subsample(), n_prototypes=18, random_state=0).fit(X, y)
learned = kp.SCC(n_prototypes=0.02).fit(X, y)

errors = {}
for name, clf in {"all points": full, "random points": drawn, "learned": learned}.items():
    start = time.perf_counter()
    errors[name] = 1 - clf.score(X_test, y_test)
    seconds = time.perf_counter() - start
    print(f"{name:14} {len(clf.prototypes_):4} prototypes   {errors[name]:6.1%} errors   {1e3 * seconds:5.1f} ms")

assert len(learned.prototypes_) == 18
assert errors["learned"] < errors["all points"] + 0.01  # as good as the whole training set
assert errors["learned"] < errors["random points"] / 5

with TemporaryDirectory() as folder:  # a model is one small file, without pickle
    learned.save(f"{folder}/digits.knnp")
    again = kp.load(f"{folder}/digits.knnp")
    size = Path(f"{folder}/digits.knnp").stat().st_size
print(f"the model takes {size / 1000:.0f} kB, the training set {X.nbytes / 1000:.0f} kB")
assert size < X.nbytes / 25
assert (again.predict(X_test) == learned.predict(X_test)).all()
