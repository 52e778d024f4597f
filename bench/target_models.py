"""Models that users would try first, compiled for a GPU that is not there.

    PYTHONPATH=.venv/models python -m bench.target_models --markdown docs/target.md

Each model's script runs as `inductoscope run` would run it; then its graphs are compiled for the
target. `--keep FOLDER` keeps the recordings, and a recording that is there is not made again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from battery.workplace import workplace

from inductoscope.errors import InductoscopeError
from inductoscope.model.entities import Recording
from inductoscope.model.fold import load
from inductoscope.model.kernels import NativeIndex, generated, library_calls
from inductoscope.model.target import left_out, target_notes
from inductoscope.targets.recompile import recording_for_target
from inductoscope.targets.work_list import captured_graphs
from inductoscope.torch_facts.gpu_targets import parse_target

SCRIPTS = Path(__file__).parents[1] / "battery" / "models" / "scripts"
MODELS = {
    "GPT-2, training": "gpt2_train",
    "BERT": "bert_fullgraph",
    "ResNet-18, training": "resnet18_train",
    "ConvNeXt, training": "timm_convnext_channels_last",
    "ViT, bf16 autocast": "vit_autocast",
    "T5, training": "t5_train",
    "Llama, static cache": "llama_static_cache",
    "Mixtral, training": "mixtral_train",
    "Whisper's encoder": "whisper_encode",
    "CLIP": "clip_score",
    "UNet of diffusers": "unet_denoise",
    "LSTM": "nn_lstm_tagger",
}
_BEGIN, _END = "<!-- begin: ten models -->\n", "<!-- end: ten models -->\n"


@dataclass(frozen=True)
class Outcome:
    """Outcome of one model."""

    title: str
    captured: int
    compiled: int
    graphs: int
    main: int
    kernels: int
    to_machine_code: int
    library: int
    seconds: float
    remarks: tuple[str, ...]

    @property
    def row(self) -> str:
        """A line of the table."""
        cells = (
            self.title,
            f"{self.compiled} of {self.captured}",
            str(self.graphs),
            f"{self.main:,}",
            f"{self.to_machine_code} of {self.kernels}",
            str(self.library),
            f"{self.seconds:.0f} s",
            "; ".join(self.remarks),
        )
        return f"| {' | '.join(cells)} |"


HEADINGS = (
    "model", "graphs of Dynamo compiled", "Inductor graphs", "operations of the largest",
    "Triton kernels with PTX", "library calls", "time", "what is said",
)  # fmt: skip


def record(script: Path, folder: Path) -> None:
    """Run the script and keep its recording."""
    command = [sys.executable, "-m", "inductoscope", "run", "--quiet", "--output", str(folder)]
    subprocess.run([*command, str(script)], check=True, stdout=subprocess.DEVNULL)


def examine(title: str, folder: Path, target: str) -> Outcome:
    """Compile the graphs of a recording for the target, and count what came of it."""
    try:
        made = load(recording_for_target(folder, parse_target(target)))
    except InductoscopeError as error:
        return Outcome(title, 0, 0, 0, 0, 0, 0, 0, 0.0, (str(error),))
    natives = NativeIndex(made)
    kernels = [kernel for graph in made.graphs for kernel in generated(graph)]
    captured = len(list(captured_graphs(load(folder))))
    return Outcome(
        title=title,
        captured=captured,
        compiled=captured - len(left_out(made)),
        graphs=len(made.graphs),
        main=max((len(graph.lowered) for graph in made.graphs), default=0),
        kernels=len(kernels),
        to_machine_code=sum(any(n.forms.get("ptx") for n in natives.of(k)) for k in kernels),
        library=sum(len(library_calls(graph)) for graph in made.graphs),
        seconds=made.ending.seconds if made.ending else 0.0,
        remarks=tuple(_remarks(made)),
    )


def _remarks(made: Recording) -> list[str]:
    reasons = [f"skipped: {why}" for _, why in left_out(made)]
    notes = [text for _, text in target_notes(made)]
    errors = [f"{e.type}: {e.message[:120]}" for c in made.compiles for e in c.errors]
    short = [text.partition(";")[0] for text in (*reasons, *notes, *errors)]
    return list(dict.fromkeys(short))


def table(outcomes: list[Outcome], target: str) -> str:
    """The table for the documentation."""
    import torch
    import triton

    about = (
        f"torch {torch.__version__}, Triton {triton.__version__}, {target}, on two shared cores."
    )
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    return "\n".join([about, "", *lines, *(outcome.row for outcome in outcomes), ""])


def write_into(path: Path, text: str) -> None:
    """Replace the table in a document."""
    document = path.read_text("utf-8")
    before, _, rest = document.partition(_BEGIN)
    path.write_text(f"{before}{_BEGIN}\n{text}\n{_END}{rest.partition(_END)[2]}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cuda:90")
    parser.add_argument("--only", default="", help="words of scripts, with commas between them")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--markdown", type=Path)
    asked = parser.parse_args()
    wanted = [word for word in asked.only.split(",") if word]
    outcomes = []
    with workplace("bench-target", asked.keep) as kept:
        for title, name in MODELS.items():
            if wanted and not any(word in name for word in wanted):
                continue
            folder = kept / name
            if not folder.is_dir():
                record(SCRIPTS / f"{name}.py", folder)
            outcomes.append(examine(title, folder, asked.target))
            print(outcomes[-1].row, flush=True)
    if asked.markdown:
        write_into(asked.markdown, table(outcomes, asked.target))


if __name__ == "__main__":
    main()
