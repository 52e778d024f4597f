"""Intermediate results of half precision kept in float32."""

from inductoscope.doctor.search.axis import setting_axis
from inductoscope.vocabulary import stages

AXIS = setting_axis(
    "precision casts",
    stages.LOWERING,
    "keeping intermediate results in higher precision",
    loss=2,
    rank=140,
    applies=lambda situation: bool(situation.dtypes & {"torch.float16", "torch.bfloat16"}),
    settings={"emulate_precision_casts": True},
)
