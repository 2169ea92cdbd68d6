package runner

import (
	"maps"
	"slices"
)

// Names lists the runners in alphabetic order.
func (t *Table) Names() []string { return slices.Sorted(maps.Keys(t.funcs)) }
