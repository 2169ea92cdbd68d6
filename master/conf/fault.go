package conf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/go-multierror"
)

// Fault is something in a configuration that a master does not start with.
type Fault struct {
	Path   string // of the file; "" when no file says it
	Line   int    // from 1; 0 when not known
	Option string // "" when the file cannot be read
	Err    error
}

// Faults are those of an error of [Load], in their order.
func Faults(err error) []error {
	if all := (*multierror.Error)(nil); errors.As(err, &all) {
		return all.Errors
	}
	return []error{err}
}

// Error gives the fault in the form path:line: option name: text.
func (f *Fault) Error() string {
	text := f.Err.Error()
	if f.Option != "" {
		text = "option " + f.Option + ": " + text
	}
	return place(f.Path, f.Line) + text
}

// Unwrap gives the fault without its place.
func (f *Fault) Unwrap() error { return f.Err }

// place is the beginning of a message about a line of a file.
func place(path string, line int) string {
	switch {
	case path == "":
		return ""
	case line <= 0:
		return path + ": "
	}
	return fmt.Sprintf("%s:%d: ", path, line)
}

// inOrder lists the settings, and sorts them, faults and notes: files in the order in which they were read,
// and the lines of each from the top; what no file says comes last. It makes one
// error of the faults.
func (r *reader) inOrder() error {
	first := make(map[string]int, len(r.files))
	for i, f := range slices.Backward(r.files) {
		first[f] = i - len(r.files)
	}

	compare := func(pathA string, lineA int, pathB string, lineB int) int {
		return cmp.Or(cmp.Compare(first[pathA], first[pathB]), cmp.Compare(lineA, lineB))
	}
	slices.SortStableFunc(r.notes, func(a, b Note) int { return compare(a.Path, a.Line, b.Path, b.Line) })

	for name, o := range r.origins {
		use, remark := Use(name)
		if use == "" {
			remark = notKnown
		}

		r.settings = append(r.settings, Setting{
			Option: name,
			Path:   o.path,
			Line:   o.line,
			Use:    use,
			Remark: remark,
		})
	}

	slices.SortFunc(r.settings, func(a, b Setting) int {
		return cmp.Or(compare(a.Path, a.Line, b.Path, b.Line), cmp.Compare(a.Option, b.Option))
	})
	slices.SortStableFunc(r.faults, func(a, b *Fault) int { return compare(a.Path, a.Line, b.Path, b.Line) })
	var all *multierror.Error
	for _, f := range r.faults {
		all = multierror.Append(all, f)
	}

	return all.ErrorOrNil()
}
