"""Real models under the doctor: make models, or python -m battery.models.run.

`scripts` has one program per model, as a user would write it: small configurations and random
weights from transformers, timm, torchvision, diffusers and torch.nn. `catalogue` reads them,
`trial` runs them plainly and under the doctor, `planting` breaks torch below some of them, and
`table` writes docs/models.md. A new model is a new script, nothing else.
"""
