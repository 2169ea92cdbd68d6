package wheel

import "sort"

// names lists all functions.
func names() []string {
	t := functionTable()
	out := make([]string, 0, len(t))
	for n := range t {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}
