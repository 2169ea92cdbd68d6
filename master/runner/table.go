package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"saltern/master/value"
)

// ErrUnavailable means that this master lacks the part that a runner needs.
var ErrUnavailable = errors.New("not available on this master")

// UnknownError means that no runner has this name. Its text is the same as Salt's.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string { return fmt.Sprintf("'%s' is not available.", e.Name) }

// ArgumentError means that the arguments do not fit the runner. Its text is the same as Salt's.
type ArgumentError struct {
	Reason string
	// Usage shows how to call the runner. It is "" when only a value is wrong.
	Usage string
}

func (e *ArgumentError) Error() string { return "Passed invalid arguments: " + e.Reason }

// Result returns the text that is the result of a runner that was called with wrong arguments. For
// any other error it returns nil. For Salt, a call with wrong arguments is no failure
// (salt/client/mixins.py low).
func Result(err error) any {
	var wrong *ArgumentError
	if !errors.As(err, &wrong) || wrong.Usage == "" {
		return nil
	}
	return "\n" + wrong.Error() + "\n\nUsage:\n\n    " + wrong.Usage + "\n"
}

// Exception is the error that a caller of error.error has asked for by name.
type Exception struct{ Name, Message string }

func (e *Exception) Error() string { return e.Name + ": " + e.Message }

// Func is a runner. kwargs may be nil.
type Func func(ctx context.Context, env *Env, args []any, kwargs *value.Map) (any, error)

// Table holds runners by name.
type Table struct{ funcs map[string]Func }

// New returns a table of all runners in this package.
func New() *Table {
	t := &Table{funcs: map[string]Func{}}
	for _, defs := range allDefs() {
		for name, d := range defs() {
			t.funcs[name] = d.bindTo(name)
		}
	}
	return t
}

// allDefs returns the functions that return the runners of each module.
func allDefs() []func() map[string]def {
	return []func() map[string]def{jobsDefs, manageDefs, cacheDefs, filesDefs, showFilesDefs, pillarDefs, miscDefs,
		reactorDefs, resourceDefs, pauseDefs, batchDefs}
}

// Add adds or replaces a runner. The table must not be used during the call.
func (t *Table) Add(name string, f Func) { t.funcs[name] = f }

// Names returns the names of all functions in alphabetical order.
func (t *Table) Names() []string { return slices.Sorted(maps.Keys(t.funcs)) }

// Has reports whether the table has a runner of this name.
func (t *Table) Has(name string) bool { return t.funcs[name] != nil }

// Call calls a runner. Errors of type *UnknownError and *ArgumentError mean that the caller has
// made a mistake.
func (t *Table) Call(ctx context.Context, env *Env, name string, args []any, kwargs *value.Map) (any, error) {
	f := t.funcs[name]
	if f == nil {
		return nil, &UnknownError{name}
	}

	ret, err := f(ctx, env, args, kwargs)
	if err != nil {
		var unknown *UnknownError
		var argument *ArgumentError
		if !errors.As(err, &unknown) && !errors.As(err, &argument) {
			err = fmt.Errorf("runner %s: %w", name, err)
		}
		return nil, err
	}

	return ret, nil
}

// def describes a runner by the parameters of the Python function, in order. A parameter that ends
// in "=" has a default; if the caller omits the argument, call.values has no entry for it. "*" and
// "**" at the end collect the remaining arguments.
type def struct {
	params string
	do     func(*call) (any, error)
}

// call is one call of a runner with its arguments bound to parameters.
type call struct {
	*Env
	ctx    context.Context
	values map[string]any
	args   []any      // positional arguments beyond the parameters
	kwargs *value.Map // named arguments beyond the parameters; never nil
}

func (d def) bindTo(name string) Func {
	short := name[strings.IndexByte(name, '.')+1:]
	return func(ctx context.Context, env *Env, args []any, kwargs *value.Map) (any, error) {
		c := &call{Env: env, ctx: ctx, values: map[string]any{}, kwargs: &value.Map{}}
		if err := c.bindArguments(short, strings.Fields(d.params), args, kwargs); err != nil {
			return nil, &ArgumentError{Reason: err.Error(), Usage: UsageOf(name, d.params)}
		}
		return d.do(c)
	}
}

// UsageOf returns the parameters of a runner, written as in def, in the form of a command line.
func UsageOf(name, params string) string {
	words := []string{"salt-run", name}
	for p := range strings.FieldsSeq(params) {
		switch n, opt := strings.CutSuffix(p, "="); {
		case p == "*":
			words = append(words, "[value ...]")
		case p == "**":
			words = append(words, "[name=value ...]")
		case opt:
			words = append(words, "["+n+"=...]")
		default:
			words = append(words, n)
		}
	}

	return strings.Join(words, " ")
}

// bindArguments assigns arguments to parameters. The text of its error is the same as Python's.
func (c *call) bindArguments(short string, params []string, args []any, kwargs *value.Map) error {
	rest, more := false, false
	var names, missing []string
	optional := map[string]bool{}
	for _, p := range params {
		switch p {
		case "*":
			rest = true
		case "**":
			more = true
		default:
			n, opt := strings.CutSuffix(p, "=")
			names = append(names, n)
			optional[n] = opt
		}
	}

	for i, a := range args {
		switch {
		case i < len(names):
			c.values[names[i]] = a
		case rest:
			c.args = append(c.args, a)
		default:
			return fmt.Errorf("%s() takes %s but %s given", short, takesWords(optional), wasWords(len(args)))
		}
	}

	for k, v := range kwargs.All() {
		name, ok := k.(string)
		_, given := c.values[name]
		_, known := optional[name]
		switch {
		case !ok || strings.HasPrefix(name, "__"):
		case known && given:
			return fmt.Errorf("%s() got multiple values for argument '%s'", short, name)
		case known:
			c.values[name] = v
		case more:
			c.kwargs.Set(k, v)
		default:
			return fmt.Errorf("%s() got an unexpected keyword argument '%s'", short, name)
		}
	}

	for _, n := range names {
		if _, given := c.values[n]; !given && !optional[n] {
			missing = append(missing, "'"+n+"'")
		}
	}

	if len(missing) > 0 {
		plural := ""
		if len(missing) > 1 {
			plural = "s"
		}
		return fmt.Errorf("%s() missing %d required positional argument%s: %s", short, len(missing), plural,
			strings.Join(missing, " and "))
	}

	return nil
}

// takesWords returns how many arguments a function takes, in the form of Python's error text.
// wasWords returns the number of arguments in the call, in the form of the same text.
func takesWords(optional map[string]bool) string {
	maxWords, minWords := len(optional), 0
	for _, opt := range optional {
		if !opt {
			minWords++
		}
	}
	switch {
	case minWords < maxWords:
		return fmt.Sprintf("from %d to %d positional arguments", minWords, maxWords)
	case maxWords == 1:
		return "1 positional argument"
	}
	return fmt.Sprintf("%d positional arguments", maxWords)
}

func wasWords(n int) string {
	if n == 1 {
		return "1 was"
	}
	return fmt.Sprintf("%d were", n)
}
