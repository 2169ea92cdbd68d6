// Package python manages packages for the Python that runs beside the masters: ext_pillar modules,
// renderers, runners and authentication modules.
//
// The shared storage has the wheels and the list, which names every wheel by its hash. Each node
// unpacks the wheels for its own Python into a folder on its own disk, a layer. The layer is at the
// end of Python's path, so that no package replaces a module of Salt. Nothing is ever built, and no
// code of a package runs while it is unpacked. A layer appears completely or not at all. If the
// present packages cannot be unpacked, the last layer stays in use until they can.
package python

// Dir is the folder of the packages, relative to the shared storage.
const Dir = "etc/python"

// Names of files and folders in Dir.
const (
	listName  = "packages.json"
	wheelsDir = "wheels"
)

// Bounds of a set of packages.
const (
	maxPackages  = 200
	maxWheel     = 128 << 20 // bytes of one wheel
	maxWheels    = 256 << 20 // bytes of all wheels together
	maxUnpacked  = 1 << 30   // bytes of a layer
	maxFiles     = 50_000    // files of a layer
	maxList      = 1 << 20
	maxText      = 1 << 20  // bytes of METADATA, and of WHEEL
	maxRecord    = 16 << 20 // bytes of RECORD
	maxPath      = 512
	maxRequires  = 1000
	maxNameBytes = 100
)
