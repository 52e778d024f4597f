"""Intermediate results of half precision kept in float32."""

from inductoscope.inside.search.axis import setting_axis
from inductoscope.torch_facts import stages

AXIS = setting_axis(
    "precision casts",
    stages.LOWERING,
    "keeping intermediate results in higher precision",
    loss=2,
    rank=140,
    applies=lambda situation: bool(situation.dtypes & {"torch.float16", "torch.bfloat16"}),
    settings={"emulate_precision_casts": True},
)
