// Package output formats return values as the text that Salt's command line tools print. It
// implements the outputters nested, highstate, json, yaml, txt, raw, pprint, key, no_return,
// newline_values_only and quiet.
//
// The text equals that of Salt's own outputters (salt/output/*.py), byte for byte, with one
// intended difference: nested, highstate, key and no_return make all terminal escapes from minions
// harmless, while Salt makes only some harmless. If Options.StripEscapes is false, all escapes are
// printed, as with strip_colors: False in Salt.
//
// Values have the types of package msgpack. The package keeps no state and never
// changes the values it is given; all functions may be called concurrently.
package output
