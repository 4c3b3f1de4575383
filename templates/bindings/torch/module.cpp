// An empty Python module: `import` loads the library, and loading registers its ops.
#define Py_LIMITED_API 0x03080000
#include <Python.h>

#define KGEN_JOINED(a, b) a##b
#define KGEN_INIT(name) KGEN_JOINED(PyInit_, name)
#define KGEN_TEXT_OF(name) #name
#define KGEN_TEXT(name) KGEN_TEXT_OF(name)

// KGEN_TORCH_MODULE: the module's name, defined by the build.
PyMODINIT_FUNC KGEN_INIT(KGEN_TORCH_MODULE)() {
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, KGEN_TEXT(KGEN_TORCH_MODULE), nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr};
    return PyModule_Create(&definition);
}
