"""An adapter that PEFT loads onto the pretrained model has the predictions of the merged model."""

import peft
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from frostline import FrostlineError
from frostline.model.ways import Way
from frostline.training.start import require_peft, write_adapter
from frostline.training.train import run
from training.by_hand import way_spec


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # PEFT asks transformers for it
@pytest.mark.parametrize("tune", [2, "full"])
def test_peft_loads_the_adapter(context, tiny_bert, tmp_path, tune):
    spec = way_spec(Way(tune=tune, low_rank=3), num_train_epochs=2)
    run(spec, context)
    write_adapter(tmp_path, spec, context.pretrained)
    base = AutoModelForSequenceClassification.from_pretrained(tiny_bert, num_labels=2)
    loaded = peft.PeftModel.from_pretrained(base, tmp_path).eval()
    batch = context.tokens.batch(context.splits["validation"])
    with torch.no_grad():
        expected, found = (model(**batch).logits for model in (context.pretrained.model.eval(), loaded))
    assert (found - expected).abs().max() < 1e-5
    assert float(expected.std()) > 0.01


def test_without_peft_the_flag_is_refused(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FrostlineError, match="needs PEFT: install it"):
        require_peft()
