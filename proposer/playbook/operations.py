"""Single operations of the decode step, each as a C kernel under the function it replaces.

A preparation step loads the library and hangs it on the module (`layers.native_norm`); the function
looks there first. So the running engine is changed in place, and where nothing was built, or a row
isn't the kernel's kind, the old body runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from proposer.playbook.edit import guard
from proposer.playbook.native import library, prepare_step
from proposer.playbook.rewrite import Change, Parameter, Rewrite, Settings, Sources

_PREPARE = '''
"""Load {library} for {module}."""

import ctypes

import torch

from .. import {module}
from ..native import library


def prepare(engine):
    if engine.model.device.type != "cpu" or engine.model.dtype != torch.bfloat16:
        return
    function = library("{library}").{function}
    function.restype = None
    function.argtypes = [{arguments}]
    {module}.native_{function} = function
'''
_C_TYPES = {
    "p": "ctypes.c_void_p",
    "i": "ctypes.c_int",
    "l": "ctypes.c_int64",
    "f": "ctypes.c_float",
}


@dataclass(frozen=True)
class _Kernel:
    """A function of csrc/kernels.c: where it is used and its C arguments (a letter each)."""

    function: str
    arguments: str
    module: str
    replaced: str
    code: str

    def edit(self, sources: Sources, settings: Settings) -> Change:
        name = f"{self.module}_{self.function}"
        files, build = library(name, "lanes", "rows_bf16", "kernels")
        text = _PREPARE.format(
            library=name,
            module=self.module,
            function=self.function,
            arguments=", ".join(_C_TYPES[letter] for letter in self.arguments),
        )
        files |= prepare_step(sources, name, text)
        path = f"slim/{self.module}.py"
        code = self.code.replace("$threads", repr(settings.get("threads", 1)))
        files[path] = guard(sources[path], self.replaced, code)
        return Change(files, (build,))


_NORM = _Kernel(
    "rms_norm",
    "pppiif",
    "layers",
    "rms_norm",
    """
    native = globals().get("native_rms_norm")
    if native is not None and x.shape[0] <= 4 and x.shape[1] % 32 == 0 and x.is_contiguous():
        out = torch.empty_like(x)
        native(x.data_ptr(), weight.data_ptr(), out.data_ptr(), x.shape[0], x.shape[1], eps)
        return out
    """,
)
_ROPE = _Kernel(
    "rotate",
    "ppppii",
    "layers",
    "rotary",
    """
    native = globals().get("native_rotate")
    if native is not None and x.shape[0] == 1 and x.is_contiguous():
        out = torch.empty_like(x)
        places = (x.data_ptr(), cos.data_ptr(), sin.data_ptr(), out.data_ptr())
        native(*places, x.shape[1], x.shape[2])
        return out
    """,
)
_SILU = _Kernel(
    "silu_mul",
    "pppi",
    "layers",
    "mlp",
    """
    native = globals().get("native_silu_mul")
    if native is not None and x.shape[0] == 1 and gate.shape[0] % 16 == 0:
        opened, raised = linear(x, gate), linear(x, up)
        native(opened.data_ptr(), raised.data_ptr(), opened.data_ptr(), gate.shape[0])
        return linear(opened, down)
    """,
)
_MATVEC = _Kernel(
    "matvec",
    "pppiiii",
    "layers",
    "linear",
    """
    native = globals().get("native_matvec")
    if native is not None and x.shape[0] == 1 and x.shape[1] % 32 == 0 and weight.is_contiguous():
        out = x.new_empty((1, weight.shape[0]))
        places = (weight.data_ptr(), x.contiguous().data_ptr(), out.data_ptr())
        native(*places, weight.shape[0], weight.shape[1], 0, $threads or torch.get_num_threads())
        return out
    """,
)
_ATTENTION = _Kernel(
    "attention",
    "ppppiiiillfi",
    "layers",
    "attention_decode",
    """
    native = globals().get("native_attention")
    alike = k.stride() == v.stride() and k.stride(2) == 1
    if native is not None and alike and q.shape[1] % 32 == 0:
        q = q.contiguous()
        out = torch.empty_like(q)
        places = (q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr())
        sizes = (q.shape[0], k.shape[1], q.shape[1], k.shape[0], k.stride(0), k.stride(1))
        threads = $threads or torch.get_num_threads()
        native(*places, *sizes, q.shape[1] ** -0.5, threads)
        return out
    """,
)
_LOGITS = _Kernel(
    "matvec",
    "pppiiii",
    "model",
    "Model.logits",
    """
    native = globals().get("native_matvec")
    if native is not None and hidden.shape[0] == 1 and hidden.shape[1] % 32 == 0:
        normed = rms_norm(hidden, self.final_norm, self.config.norm_eps).contiguous()
        out = torch.empty(1, self.output.shape[0])
        places = (self.output.data_ptr(), normed.data_ptr(), out.data_ptr())
        native(*places, *self.output.shape, 1, $threads or torch.get_num_threads())
        return out
    """,
)
_THREADS = Parameter("threads", (0, 1))

OPERATIONS = (
    Rewrite(
        "c-matvec",
        "torch's bfloat16 product of one row doesn't reach the memory's bandwidth; a plain loop "
        "over rows does.",
        _MATVEC.edit,
        (_THREADS,),
    ),
    Rewrite(
        "c-logits",
        "The output matrix is a fifth of the bytes of a pass: a C product that writes float32 "
        "scores saves a slow product and a conversion.",
        _LOGITS.edit,
        (_THREADS,),
    ),
    Rewrite(
        "c-attention",
        "One query over a short context is all call overhead in torch; one C call does it in place "
        "in the cache.",
        _ATTENTION.edit,
        (_THREADS,),
    ),
    Rewrite("c-norm", "Two norms a layer cost more in calls than in work.", _NORM.edit),
    Rewrite(
        "c-rope", "Rotation makes four small tensors a call; one C loop makes one.", _ROPE.edit
    ),
    Rewrite("c-silu-mul", "Gate and product in one loop, in place.", _SILU.edit),
)
