"""Complete the splits, and draw nested, stratified subsets, in which every size contains the smaller ones.

All rows get one order, and the subset of size m is its first m rows. The j-th row of class c (n_c of n rows) may only stand
at positions (j - 1) n / n_c to j n / n_c. At every size such an order has less than one row too many or too few of each class.
Taking the row whose window closes first satisfies all windows (Baruah et al. 1996). Finally one row of each class moves to the
front, and its later position is skipped.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.examples import Examples, Indices, Targets
from frostline.data.kinds import CLASSIFICATION, HOLD_OUT, NO_TEST, is_keyword
from frostline.data.tags import NO_WORD
from frostline.data.task import Task
from frostline.data.wording import quoted

RANK_BINS = 10  # strata of regression targets
STRATUM_ROWS = 10  # a label of fewer rows is no stratum: it cannot be in every part


def subset_indices(targets: Targets, size: int, seed: int) -> Indices:
    """A subset of ``size`` rows, as positions in ``targets``, ``[size]``. The same ``seed`` gives nested subsets.

    Class indices (int64) are stratified by class, numbers (float64) by deciles, all others as in :func:`strata`.
    """
    assert least_size(targets) <= size <= len(targets), "settings with such a train size are refused"
    return stratified_indices(targets, size, np.random.default_rng(seed))


def stratified_indices(targets: Targets, size: int, rng: np.random.Generator) -> Indices:
    """The first ``size`` rows of a random stratified order, as positions in ``targets``, ``[size]``."""
    present, stratum_of = np.unique(strata(targets), return_inverse=True)
    # Strata are numbered randomly. Otherwise, of two strata with the same deadline, the same one would always come first.
    stratum_of = rng.permutation(len(present))[stratum_of]
    shuffled = rng.permutation(len(targets))
    grouped = shuffled[stratum_of[shuffled].argsort(kind="stable")]
    by_stratum = np.split(grouped, np.cumsum(np.bincount(stratum_of))[:-1])
    rows = [iter(members.tolist()) for members in by_stratum]
    order = _order([len(members) for members in by_stratum], size)
    return np.array([next(rows[stratum]) for stratum in order], dtype=np.int64)


def strata(targets: Targets) -> npt.NDArray[Any]:
    """The stratum of each row, ``[N]``: its class, or the decile of its number.

    Sentences ``[N, W]`` have two strata: those in which every word has the most frequent tag, and all others. The stratum of a
    text with any number of labels (bool ``[N, C]``) is the rarest of its labels that at least ``STRATUM_ROWS`` rows have.
    """
    if targets.dtype == np.bool_:
        rows = targets.sum(0)
        common = rows >= STRATUM_ROWS
        by_rarity = np.argsort(np.where(common, rows, len(targets) + 1), kind="stable")
        own = targets[:, by_rarity] & common[by_rarity]
        return np.asarray(np.where(own.any(1), by_rarity[own.argmax(1)], targets.shape[1]))
    if targets.ndim > 1:
        most_frequent = np.bincount(targets[targets != NO_WORD].astype(np.int64)).argmax()
        return np.asarray(((targets != most_frequent) & (targets != NO_WORD)).any(axis=1).astype(np.int64))
    return targets if _are_classes(targets) else targets.argsort(kind="stable").argsort() * RANK_BINS // len(targets)


def least_size(targets: Targets) -> int:
    """The fewest rows of a subset: one of each class. Other targets need one row."""
    return len(np.unique(strata(targets))) if _are_classes(targets) else 1


def _order(counts: list[int], size: int) -> list[int]:
    """The stratum at each of the first ``size`` positions: one row of each stratum, then by deadline."""
    order = sorted(range(len(counts)), key=lambda stratum: -counts[stratum])
    shown: set[int] = set()
    for stratum in _by_deadline(counts):
        if len(order) >= size:
            break
        if stratum in shown:
            order.append(stratum)
        shown.add(stratum)
    return order[:size]


def _by_deadline(counts: list[int]) -> Iterator[int]:
    """The stratum at every position, such that each row is within its window: the earliest deadline first."""
    total, taken = sum(counts), [0] * len(counts)
    waiting, ready = [(0, stratum) for stratum in range(len(counts))], list[tuple[int, int]]()
    for position in range(total):
        while waiting and waiting[0][0] <= position:
            _, stratum = heapq.heappop(waiting)
            deadline = -(-(taken[stratum] + 1) * total // counts[stratum])
            heapq.heappush(ready, (deadline, stratum))
        _, stratum = heapq.heappop(ready)
        taken[stratum] += 1
        if taken[stratum] < counts[stratum]:
            heapq.heappush(waiting, (taken[stratum] * total // counts[stratum], stratum))
        yield stratum


def _are_classes(targets: Targets) -> bool:
    return bool(np.issubdtype(targets.dtype, np.integer))


def _are_numbers(targets: Targets) -> bool:
    return bool(np.issubdtype(targets.dtype, np.floating))


NO_TEST_SET = "There is no test set, as requested."
DEFAULT_SHARE = 0.1  # share of the training rows to hold out, for each of validation and test
MAX_HELD_OUT = 2000  # most rows to hold out by default, because every run is scored on them
# folds = "auto" uses this many folds for fewer rows, of which DEFAULT_SHARE would be too few to tell choices apart
DEFAULT_FOLDS, FEW_ROWS = 5, 5000
MIN_FOLD_ROWS = 5


def complete_splits(
    given: Mapping[str, Examples],
    task: Task,
    sources: Mapping[str, Any],
    held_out_share: float | None,
    folds: int | str,
    seed: int,
) -> tuple[dict[str, Examples], npt.NDArray[np.int64] | None, list[str]]:
    """Hold out training rows for validation and test if ``given`` lacks them, or assign the training rows to folds.

    ``sources`` are what the user gave as "validation" and "test": a source, a keyword, or None. ``folds`` may be "auto".

    Returns:
        All splits, without "validation" if there are folds; the fold of each training row, ``[N]``, or None; and a sentence on
        each split that was held out.

    Raises:
        FrostlineError: The options contradict each other, or there are too few rows.
    """
    splits, notes = dict(given), list[str]()
    has_validation = "validation" in given or sources["validation"] is not None
    few = DEFAULT_FOLDS * MIN_FOLD_ROWS <= len(given["train"]) < FEW_ROWS
    suited = _usual_folds(given["train"]) if few and held_out_share is None and not has_validation else 0
    if folds == "auto":
        folds = suited
    elif folds and has_validation:
        raise FrostlineError(
            f"folds = {folds} scores the training rows themselves: leave out either validation or folds."
        )
    elif folds and held_out_share is not None and not is_keyword(sources["test"], HOLD_OUT):
        raise FrostlineError(f"folds = {folds} holds out no rows: leave out either held_out_share or folds.")
    without_test = is_keyword(sources["test"], NO_TEST)
    if without_test:
        notes.append(NO_TEST_SET)
    elif folds and sources["test"] is None and "test" not in splits:
        without_test = True
        notes.append("No rows are held out for validation or test; --test FILE adds a test set.")
    unwanted = {"test": without_test, "validation": bool(folds)}
    missing = [split for split in ("test", "validation") if split not in splits and not unwanted[split]]
    rows = len(splits["train"])
    if held_out_share is not None and held_out_share * len(missing) >= 1:
        raise FrostlineError(
            f"held_out_share = {held_out_share:g} for each of {' and '.join(missing)} leaves no training rows: give less than "
            f"{1 / len(missing):g}."
        )
    size = min(round(DEFAULT_SHARE * rows), MAX_HELD_OUT) if held_out_share is None else round(held_out_share * rows)
    size = max(size, least_size(splits["train"].targets))
    for split in missing:
        rows = len(splits["train"])
        splits["train"], splits[split] = hold_out(splits["train"], task, size, seed, split=split)
        joined = splits["train"].groups is not None or splits["train"].repeats or splits[split].repeats
        together = f" Rows with {_in_common(task)} stay together." if joined else ""
        hint = ""
        if split == "validation" and suited:
            hint = f" These are few: with --folds {suited}, all rows are validation rows."
        notes.append(
            f"{len(splits[split]):,} of {rows:,} training rows are held out for {split} (data seed {seed}).{together}{hint}"
        )
    if not folds:
        return splits, None, notes
    numbers = fold_numbers(splits["train"], task, int(folds), seed)
    notes.append(
        f"All {len(splits['train']):,} rows are validation rows, in {folds} folds: each run is scored on the fold that it "
        f"does not train on, one fold per seed (data seed {seed}). Rows with {_in_common(task)} are in the same fold."
    )
    return splits, numbers, notes


def _usual_folds(train: Examples) -> int:
    """``DEFAULT_FOLDS``, or one for each group if these are fewer; 0 if there is a single one."""
    if train.groups is None:
        return DEFAULT_FOLDS
    groups = len(np.unique(train.together()))
    return min(DEFAULT_FOLDS, groups) if groups > 1 else 0


def _in_common(task: Task) -> str:
    """What rows that stay together have in common."""
    group = task.columns.group
    return "the same text" if group is None else f"the same text or the same {quoted(group)}"


def hold_out(examples: Examples, task: Task, size: int, seed: int, *, split: str) -> tuple[Examples, Examples]:
    """Hold out ``size`` stratified rows as ``split``.

    Returns:
        The remaining rows and the held-out rows, both in the order of the file.

    Raises:
        FrostlineError: A class would have no rows in one of the two.
    """
    needed = least_size(examples.targets)
    if not needed <= size < len(examples):
        shown = f"all {needed} classes" if needed > 1 else "any row"
        raise FrostlineError(
            f"{examples.name}: {size:,} of {len(examples):,} rows held out for {split} cannot leave {shown} there and "
            f"in training; give more rows or --{split} FILE."
        )
    # Each split has its own generator. With the same draws, validation and test would depend on each other.
    rng = np.random.default_rng([seed, *split.encode()])
    chosen = np.zeros(len(examples), dtype=bool)
    chosen[_drawn(examples, size, rng)] = True
    rest, held_out = examples.take(np.flatnonzero(~chosen)), examples.take(np.flatnonzero(chosen))
    _refuse_exhausted_class(examples, chosen, task, "for training and each split that is held out", split)
    if not len(held_out):
        raise FrostlineError(
            f"{examples.name}: all {len(examples):,} rows left for training have {_in_common(task)}, so none can be held "
            f"out for {split}; give more rows or --{split} FILE."
        )
    return rest, held_out


def _drawn(examples: Examples, size: int, rng: np.random.Generator) -> list[int]:
    """About ``size`` rows in a random stratified order. Rows that belong together are all drawn, or none is.

    Texts and groups that are too frequent for ``size`` are not drawn, unless a class would have no other. Every class keeps a row
    that is not drawn. Without equal texts and groups these are exactly the first ``size`` rows.
    """
    together = examples.together()
    if len(np.unique(together)) == len(examples):
        return stratified_indices(examples.targets, size, rng).tolist()  # type: ignore[no-any-return]
    order = stratified_indices(examples.targets, len(examples), rng).tolist()
    of_classes = examples.targets.ndim == 1 and least_size(examples.targets) > 1
    own = examples.targets if of_classes else np.zeros(len(examples), np.int64)
    rows: dict[int, list[int]] = defaultdict(list)  # of each part, whose rows belong together
    of_class: dict[int, dict[int, None]] = defaultdict(dict)  # the parts of each class
    for row in order:
        rows[together[row]].append(row)
        of_class[own[row]][together[row]] = None
    left, drawn, taken = Counter(own.tolist()), list[int](), set[int]()

    def draw(part: int, most: int) -> bool:
        """Draw the rows of this part if they are at most ``most``, and no class loses its last row."""
        if part in taken or len(rows[part]) > most:
            return False
        lost = Counter(own[rows[part]].tolist())
        if any(left[one] <= count for one, count in lost.items()):
            return False
        drawn.extend(rows[part])
        taken.add(part)
        left.subtract(lost)
        return True

    for parts in of_class.values():
        if taken.isdisjoint(parts):
            any(draw(part, size - len(drawn)) for part in parts) or any(
                draw(part, len(examples)) for part in sorted(parts, key=lambda part: len(rows[part]))
            )
    for part in rows:
        if len(drawn) >= size:
            break
        draw(part, size - len(drawn))
    return sorted(drawn)


def fold_numbers(examples: Examples, task: Task, folds: int, seed: int) -> npt.NDArray[np.int64]:
    """The fold of each row, 0 to ``folds`` - 1, ``[N]``. Folds are stratified and have nearly the same size. Of each ``folds``
    consecutive numbers of a regression, every fold has one.

    Rows whose texts read alike are in the same fold, so that no run is scored on a text that it was trained on. So are rows of a
    group. Groups can have many rows: the largest come first, each into the fold that has fewest rows of its classes.

    Raises:
        FrostlineError: A fold has too few rows for a score, or all rows of a class are in one fold.
    """
    rng, targets = np.random.default_rng([seed, *b"folds"]), examples.targets
    shuffled, dealt = rng.permutation(len(examples)), np.arange(len(examples)) % folds
    if _are_numbers(targets):
        blocks = np.tile(np.arange(folds), (-(-len(examples) // folds), 1))
        dealt = rng.permuted(blocks, axis=1).ravel()[: len(examples)]  # else one fold would always have the lowest
    order = targets if _are_numbers(targets) else strata(targets)
    numbers = np.empty(len(examples), np.int64)
    numbers[shuffled[order[shuffled].argsort(kind="stable")]] = dealt  # one class, or number, after the other
    together = examples.together()
    numbers = numbers[together] if examples.groups is None else _dealt(together, strata(targets), folds, rng)
    if (smallest := int(np.bincount(numbers, minlength=folds).min())) < MIN_FOLD_ROWS:
        raise FrostlineError(
            f"{examples.name}: {folds} folds of {len(examples):,} rows leave {smallest} in one (rows with {_in_common(task)} "
            f"stay together), and a score needs {MIN_FOLD_ROWS}: give fewer --folds, more rows, or --validation FILE."
        )
    _refuse_exhausted_class(examples, numbers, task, "to be both trained on and scored", "validation")
    return numbers


def _dealt(together: Indices, strata_of: npt.NDArray[Any], folds: int, rng: np.random.Generator) -> Indices:
    """The fold of each row, ``[N]``, where rows with the same number are ``together``."""
    known, group = np.unique(together, return_inverse=True)
    present, stratum = np.unique(strata_of, return_inverse=True)
    group = rng.permutation(len(known))[group]
    sizes = np.bincount(group)
    rows = np.zeros((len(known), len(present) + 1))  # of each group, as a share of each stratum, and of all rows
    np.add.at(rows, (group, stratum), 1 / np.bincount(stratum)[stratum])
    rows[:, -1] = sizes / len(group)  # else the first fold would have the odd row of every stratum
    held, fold = np.zeros((folds, rows.shape[1])), np.empty(len(known), np.int64)
    for one in np.argsort(-sizes, kind="stable"):
        fold[one] = (held @ rows[one]).argmin()
        held[fold[one]] += rows[one]
    return fold[group]


def _refuse_exhausted_class(examples: Examples, part: npt.NDArray[Any], task: Task, purpose: str, split: str) -> None:
    """Raise an error if all rows of a class are in one part."""
    for target in np.unique(examples.targets) if task.task_type == CLASSIFICATION else ():
        rows = np.flatnonzero(examples.targets == target)
        if len(np.unique(part[rows])) == 1:
            unit = "different texts" if examples.take(rows).repeats else "rows"
            unit = unit if task.columns.group is None else f"different {quoted(task.columns.group)}"
            raise FrostlineError(
                f"{examples.name}, row {examples.rows[rows[0]]}: the label {quoted(task.labels[int(target)])} has too few "
                f"{unit} {purpose}; add rows, remove it, or give --{split} FILE."
            )
