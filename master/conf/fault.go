package conf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/go-multierror"
)

// Fault is an error in a configuration that prevents a master from starting.
type Fault struct {
	Path   string // file that sets the option; "" when none does
	Line   int    // line in the file, counted from 1; 0 when not known
	Option string // name of the option; "" when the file itself cannot be read
	Err    error
}

// Faults returns the single faults in an error of [Load], in order.
func Faults(err error) []error {
	if all := (*multierror.Error)(nil); errors.As(err, &all) {
		return all.Errors
	}
	return []error{err}
}

// Error returns the fault in the form path:line: option name: text.
func (f *Fault) Error() string {
	text := f.Err.Error()
	if f.Option != "" {
		text = "option " + f.Option + ": " + text
	}
	return placeOf(f.Path, f.Line) + text
}

// Unwrap returns the error without its position.
func (f *Fault) Unwrap() error { return f.Err }

// placeOf returns the prefix of a message about a line of a file.
func placeOf(path string, line int) string {
	switch {
	case path == "":
		return ""
	case line <= 0:
		return path + ": "
	}
	return fmt.Sprintf("%s:%d: ", path, line)
}

// inOrder collects the settings. It sorts the settings, the faults and the notes by file in the
// order in which the files were read, then by line; entries without a file come last. It returns
// all faults joined into one error.
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
