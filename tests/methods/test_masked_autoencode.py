import torch

from longtail.core import Clock, Images
from longtail.methods import MaskedAutoencode
from longtail.nn import build
from longtail.nn.mae import MaskedAutoencoder, initialise


def method() -> MaskedAutoencode:
    torch.manual_seed(0)
    network = initialise(
        build({"name": "vit_mini", "size": 8, "patch": 2, "width": 16, "depth": 2, "pool": "avg"})
    )
    return MaskedAutoencode(MaskedAutoencoder(network, width=8, depth=1, heads=2))


def test_the_loss_is_the_autoencoders() -> None:
    model, batch = method(), Images(image=torch.rand(4, 3, 8, 8), position=torch.arange(4))
    torch.manual_seed(1)
    outcome = model(batch, Clock(0, 1, 0, 1))
    torch.manual_seed(1)
    assert torch.equal(outcome.terms["reconstruction"], model.autoencoder(batch["image"]).loss)
    assert list(outcome.terms) == ["reconstruction"]


def test_features_are_of_unmasked_images() -> None:
    model, image = method().eval(), torch.rand(4, 3, 8, 8)
    body = model.autoencoder.network.body
    tokens = body.forward_features(model.autoencoder.network.normalize(image))  # type: ignore[operator]
    assert torch.allclose(model.predict(image), tokens[:, 1:].mean(1), atol=1e-6)
    assert model.deploy() is model.autoencoder.network


def test_painting_can_be_learnt() -> None:
    """Stripes of one colour: what is hidden follows from what is not."""
    model = method()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    losses = []
    for step in range(60):
        torch.manual_seed(step)
        image = (
            (torch.arange(8) + torch.randint(2, (32, 1)))[:, None, None, :]
            .remainder(2)
            .expand(32, 3, 8, 8)
            .float()
        )
        loss = model(Images(image=image, position=torch.arange(32)), Clock(step, 60, 0, 1)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
