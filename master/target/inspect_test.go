package target

import "strings"

// Traverse finds a value by a path of keys such as "a:b:0"
// (salt.utils.data.traverse_dict_and_list). Numbers index lists, and other keys are looked up in
// the maps inside a list. If a key does not exist as text, the value that YAML parses from it is
// looked up.
func Traverse(data any, path, delimiter string) (any, bool) {
	return traverse(data, strings.Split(path, delimiter))
}
