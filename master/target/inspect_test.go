package target

import "strings"

// Traverse finds a value by a path of keys such as "a:b:0"
// (salt.utils.data.traverse_dict_and_list): numbers index lists, other keys
// look into the maps inside a list, and a key that is not there as text is
// looked up as what YAML makes of it.
func Traverse(data any, path, delimiter string) (any, bool) {
	return traverse(data, strings.Split(path, delimiter))
}
