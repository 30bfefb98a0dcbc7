"""``frostline.push``: upload a saved model to the Hugging Face hub."""

from pathlib import Path

from frostline import FrostlineError
from frostline.api.prediction import require_model
from frostline.data.files import files_in
from frostline.data.wording import first_line
from frostline.model.model_files import BUNDLE, ESTIMATOR, RECORD, is_read, require_intact
from frostline.training.saved_estimators import read_estimator


def push(folder: str | Path, name: str, *, private: bool = False) -> str:
    """Upload a model to the Hugging Face hub, and return its address.

    Args:
        folder: The folder of a model, of a probe, or of a sweep with its ``model``.
        name: The repository, such as ``me/reviews``. It is made if it does not exist.
        private: Whether a new repository is private.

    Raises:
        FrostlineError: The folder has no model, or one that nobody else can use; the hub refuses it, or cannot be reached.
    """
    folder = Path(folder).expanduser()
    if not (folder / "config.json").is_file() and (folder / "model").is_dir():
        folder = folder / "model"
    require_model(folder)
    if not any((folder / record).is_file() for record in (RECORD, ESTIMATOR, BUNDLE)):
        raise FrostlineError(
            f"The model in {folder} is not what frostline saved (it has no {RECORD}): give that of a sweep or a probe. "
            f"`hf upload {name} {folder}` uploads any folder."
        )
    require_intact(folder)
    if (saved := read_estimator(folder)) and (model := saved.reads_only_here):
        raise FrostlineError(
            f"The probe in {folder} reads the model in {model}, which nobody else has: write the probe again with --embed, "
            "which copies that model into its folder, or with a hub name as --model."
        )
    # they import an HTTP library, which takes longer than the checks
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError  # type: ignore[attr-defined]

    hub, files = HfApi(), files_in(folder)
    try:
        repository = hub.create_repo(name, private=private, exist_ok=True).repo_id
        others = [one for one in hub.list_repo_files(repository) if one not in files and is_read(one)]
        if others:
            raise FrostlineError(
                f"{repository} has {others[0]}, which is not in {folder} and would be read with it: remove it there, or give "
                "another name."
            )
        hub.upload_folder(repo_id=repository, folder_path=folder, commit_message="Upload a model of frostline")
    except (HfHubHTTPError, HFValidationError, HTTPError, OSError) as error:
        raise FrostlineError(
            f"{folder} could not be uploaded to {name} ({first_line(error)}): log in with `hf auth login`, and give the name of "
            "a repository of yours, such as me/reviews."
        ) from error
    return f"{hub.endpoint}/{repository}"
