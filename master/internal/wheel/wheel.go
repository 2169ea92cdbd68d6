// Package wheel implements the functions that change the master itself: its keys, roots and
// configuration. Authenticated local clients call them by the unencrypted command "wheel". Names,
// parameters and answers are those of salt/wheel/*.py.
package wheel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"saltern/master/internal/keyadmin"
	"saltern/master/value"
)

// Roots is a tree of files, by environment, that can be edited. fileserver.Tree implements it.
type Roots interface {
	Find(path, saltenv string) []any
	ListEnv(ctx context.Context, saltenv string) (*value.Map, error)
	ListRoots(ctx context.Context) (*value.Map, error)
	Read(path, saltenv string) []any
	Write(ctx context.Context, data, path, saltenv string, index int) (string, error)
}

// Machines executes an administrator's orders for nodes.
type Machines interface {
	Drain(ctx context.Context, node string, end bool) error
	Restart(ctx context.Context, node, service string) error
}

// Env holds the objects that the wheel functions use.
type Env struct {
	Keys *keyadmin.Ring
	// FileRoots and PillarRoots may be nil: the wheel functions that use them are refused.
	FileRoots, PillarRoots Roots
	// Newest waits until the roots are up to date. It is called before the roots are read. It may
	// be nil: the roots are always up to date.
	Newest func(ctx context.Context)
	// Connected returns the ids of all connected minions.
	Connected func() []string
	// ConfigDir is the directory that contains master.d, into which config.update_config writes. ""
	// means that the configuration is elsewhere; in that case config.update_config is refused.
	ConfigDir string
	// DefaultInclude is the option default_include (such as "master.d/*.conf").
	DefaultInclude string
	// Values returns the complete configuration for the function config.values.
	Values func() *value.Map
	// KeySize is the least size of a generated key in bits.
	KeySize int
	// Machines changes the nodes of the cluster.
	Machines Machines
	// Tokens lists and ends log-ins.
	Tokens Tokens
	// PublicKey returns the public key by which minions recognise the master, and the name of its
	// file.
	PublicKey func() (name, pem string)
}

// function is one wheel function. params lists its parameters in order. required is the number of
// parameters without a default, which come first.
type function struct {
	params   []string
	required int
	do       func(ctx context.Context, e *Env, a args) (any, error)
}

// errUnknown means that this package does not implement the function.
var errUnknown = errors.New("no such wheel function")

// Has reports whether this package implements the function. Other functions may exist in Python.
func Has(name string) bool { return functionTable()[name].do != nil }

// functionTable builds a new table for each call, so that no caller can change the table of another
// caller.
func functionTable() map[string]function {
	t := keyFunctions()
	maps.Copy(t, configFunctions())
	maps.Copy(t, applianceFunctions())
	maps.Copy(t, tokenFunctions())
	maps.Copy(t, rootsFunctions("file_roots", func(e *Env) Roots { return e.FileRoots }))
	maps.Copy(t, rootsFunctions("pillar_roots", func(e *Env) Roots { return e.PillarRoots }))
	t["minions.connected"] = function{do: func(_ context.Context, e *Env, _ args) (any, error) { return e.Connected(), nil }}
	t["error.error"] = function{
		params: []string{"name", "message"},
		do: func(_ context.Context, _ *Env, a args) (any, error) {
			return nil, fmt.Errorf("%s: %s", a.textOf("name", "Exception"), a.textOf("message", ""))
		},
	}

	return t
}

// callNamed calls a function with positional and named arguments. Like Python it refuses unknown
// arguments. The caller has already removed the arguments that belong to the command: the
// credentials, and names that begin with two underscores.
func callNamed(ctx context.Context, e *Env, name string, positional []any, named *value.Map) (any, error) {
	f, ok := functionTable()[name]
	if !ok {
		return nil, fmt.Errorf("%w: %.64q", errUnknown, name)
	}

	a := args{}
	if len(positional) > len(f.params) {
		return nil, fmt.Errorf("%s takes %d arguments, %d were given", name, len(f.params), len(positional))
	}

	for i, v := range positional {
		a[f.params[i]] = v
	}

	for k, v := range named.All() {
		p, _ := k.(string)
		if !slices.Contains(f.params, p) {
			return nil, fmt.Errorf("%s takes no argument %.64q; it takes: %s", name, fmt.Sprint(k),
				strings.Join(f.params, ", "))
		}

		if _, dup := a[p]; dup {
			return nil, fmt.Errorf("%s got %q twice", name, p)
		}

		a[p] = v
	}

	for _, p := range f.params[:f.required] {
		if _, ok := a[p]; !ok {
			return nil, fmt.Errorf("%s needs the argument %q", name, p)
		}
	}

	return f.do(ctx, e, a)
}

type args map[string]any

func (a args) textOf(name, def string) string {
	if s, ok := a[name].(string); ok {
		return s
	}
	return def
}

func (a args) flagOf(name string) bool { b, _ := a[name].(bool); return b }

func (a args) numberOf(name string, def int) int {
	if n, ok := a[name].(int64); ok {
		return int(n)
	}
	return def
}
