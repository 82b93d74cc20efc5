"""The encoder of encoder_oracle.py in PyTorch, with PyTorch's own attention: in float32, or in bfloat16 if it is
called within torch.autocast("cpu", torch.bfloat16).

    encoder = TorchEncoder(config, weights)     # weights by the names of encoder_oracle.py, float32 tensors
    x = encoder.embed(tiles, encoder.positions(coords))        # of one slide: [tokens, embed_dim]
    for layer in range(config["layers"]):
        x = encoder.layer(layer, x)

Attention is the flash operator that returns log-sum-exps, called for each branch and offset. The residual, the
mix of branches and GELU are float32 also within autocast.
"""
import torch


class TorchEncoder:
    def __init__(self, config, weights):
        self.config, self.weights = config, weights

    def positions(self, coords):
        """[tiles, 2] pixels -> [tiles, embed_dim], second coordinate first; None for a model without positions."""
        if not self.config["position"]:
            return None
        quarter = self.config["embed_dim"] // 4
        cells = torch.floor(coords.double() / self.config["position"]["tile_size"])
        omega = 10000.0 ** (-torch.arange(quarter, dtype=torch.float64) / quarter)
        halves = []
        for axis in (1, 0):
            angle = cells[:, axis, None] * omega
            halves += [torch.sin(angle), torch.cos(angle)]
        return torch.cat(halves, dim=1).float()

    def linear(self, name, x):
        return torch.nn.functional.linear(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def norm(self, name, x, eps=None):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], self.weights[name + ".weight"],
                                              self.weights[name + ".bias"],
                                              self.config["layer_norm_eps"] if eps is None else eps)

    def embed(self, tiles, positions):
        """The first layer's rows of a slide, class token first."""
        x = self.linear("patch_embed.proj", tiles).float() if self.config["input_dim"] else tiles
        if positions is not None:
            x = x + positions
        return torch.cat([self.weights["cls_token"][0], x]) if self.config["class_token"] else x

    def attention(self, q, k, v):
        """[heads, rows, dim] each: branches mixed by log-sum-exp, short segments filled with zeros."""
        heads, n, dim = q.shape
        result, total = None, None
        for w, r in zip(self.config["segments"], self.config["dilations"]):
            w = min(w, n)
            count, rows = -(-n // w), -(-w // r)

            def selected(x):
                x = torch.nn.functional.pad(x, (0, 0, 0, count * w - n)).view(heads, count, w, dim)
                return torch.nn.functional.pad(x, (0, 0, 0, rows * r - w)).view(heads, count, rows, r, dim)

            parts = [selected(x) for x in (q, k, v)]
            out = torch.zeros_like(parts[0])
            lse = torch.full(out.shape[:4], -torch.inf)
            share = -(-heads // r)
            for offset in range(r):
                group = slice(offset * share, min((offset + 1) * share, heads))
                if group.start >= heads:
                    break
                o, s = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                    *(x[group, :, :, offset].contiguous() for x in parts))
                out[group, :, :, offset] = o
                lse[group, :, :, offset] = s.float()
            out = out.view(heads, count, rows * r, dim)[:, :, :w].reshape(heads, -1, dim)[:, :n]
            lse = lse.view(heads, count, rows * r)[:, :, :w].reshape(heads, -1)[:, :n]
            if result is None:
                result, total = out.float(), lse
            else:
                # NaN: neither branch selects the row.
                part = torch.sigmoid(lse - total).nan_to_num(0.0)
                result.lerp_(out.float(), part.unsqueeze(-1))
                total = torch.logaddexp(total, lse)
        return result.to(q.dtype)

    def layer(self, index, x):
        """The state before layer `index` (from 0) -> the state after it: [tokens, embed_dim]."""
        name = f"encoder.layers.{index}."
        rows, width = x.shape
        h = self.norm(name + "self_attn_layer_norm", x)
        q, k, v = (self.linear(f"{name}self_attn.{p}_proj", h)
                   .view(rows, self.config["heads"], -1).transpose(0, 1) for p in "qkv")
        h = self.attention(q, k, v).transpose(0, 1).reshape(rows, width)
        h = self.norm(name + "self_attn.inner_attn_ln", h)
        x = x + self.linear(name + "self_attn.out_proj", h)
        h = self.norm(name + "final_layer_norm", x)
        h = torch.nn.functional.gelu(self.linear(name + "ffn.fc1", h).float())
        h = self.norm(name + "ffn.ffn_layernorm", h)
        return x + self.linear(name + "ffn.fc2", h)

    def final_norm(self, x):
        return self.norm("encoder.layer_norm", x.float()) if self.config["output_norm"] else x.float()

    def pool(self, rows, kind):
        """[tokens, embed_dim] -> [embed_dim]: "class" or "mean"."""
        pooled = rows[0] if kind == "class" else rows[1 if self.config["class_token"] else 0:].mean(dim=0)
        return self.norm("norm", pooled.float(), self.config["norm_eps"])
