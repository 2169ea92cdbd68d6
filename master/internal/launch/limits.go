package launch

import (
	"fmt"
	"slices"
	"strings"

	"saltern/master/value"
)

// Limits says which fields besides function, arguments and target a caller without all rights may
// set. The zero Limits permits only fields that change nothing but the answer.
type Limits struct {
	// Fields are those [PermittableFields] that the administrator permits
	// (saltern_user_publish_fields).
	Fields []string
	// Returners are the returners that may be named in ret (saltern_user_returners). "*" stands for
	// any.
	Returners []string
	// ExtJobCache is the returner that Salt's clients add to each job (ext_job_cache,
	// salt/client/__init__.py _prep_pub). It is always allowed, because the administrator chose it
	// for all jobs.
	ExtJobCache string
}

// Refusal is an error whose text is for the caller: it says what was refused, and what helps.
type Refusal struct{ Text string }

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

func refuse(format string, a ...any) error { return &Refusal{fmt.Sprintf(format, a...)} }

// right is the permission that a field needs from a caller without all rights.
type right uint8

const (
	free        right = iota // gives no power beyond that of the function
	permittable              // needs the administrator's permission
	reserved                 // only for callers with all rights, such as a syndic
)

// field is one field of a job that clients may send. For a caller without all rights, fields that are
// not listed here are dropped: they are neither stored nor sent.
type field struct {
	name  string
	kwarg bool // the field is in the load's kwargs
	right right
	fits  func(v any) bool
	form  string // valid values, in words
}

// fields are the fields that salt/master.py _prep_pub sends to minions, and those that change what
// the master does. Minions read them in salt/minion.py _thread_return, which is the same in 3006,
// 3007 and 3008. Minions return metadata unchanged, as they do the arguments.
var fields = []field{
	{name: "fun", right: free, fits: isFunction, form: "a function or a list of functions"},
	{name: "arg", right: free, fits: isType[[]any], form: "a list"},
	{name: "tgt", right: free, fits: isTarget, form: "text or a list of text"},
	{name: "tgt_type", right: free, fits: isType[string], form: "text"},
	{name: "jid", right: free, fits: isType[string], form: "text"},
	{name: "to", right: free, fits: isNumber, form: "a number of seconds"},
	{
		name:  "delimiter",
		kwarg: true,
		right: free,
		fits:  isType[string],
		form:  "text",
	},
	{
		name:  "metadata",
		kwarg: true,
		right: free,
		fits:  isType[*value.Map],
		form:  "a map",
	},
	{
		name:  "start_event",
		kwarg: true,
		right: free,
		fits:  isType[bool],
		form:  "true or false",
	},

	// A returner may write files as root. These fields say where.
	{
		name:  "ret_config",
		kwarg: true,
		right: permittable,
		fits:  isType[string],
		form:  "text",
	},
	{
		name:  "ret_kwargs",
		kwarg: true,
		right: permittable,
		fits:  isType[*value.Map],
		form:  "a map",
	},
	// An executor changes how the function runs: as another user, or in a container.
	{name: "module_executors", kwarg: true, right: permittable, fits: anything},
	{name: "executor_opts", kwarg: true, right: permittable, fits: anything},
	// With nocache the job leaves no returns in the job cache.
	{
		name:  "nocache",
		kwarg: true,
		right: permittable,
		fits:  isType[bool],
		form:  "true or false",
	},

	// These name the job's owner. A syndic sends them for the master above it.
	{name: "master_id", kwarg: true, right: reserved},
	{name: "id", kwarg: true, right: reserved},
	{name: "auth_list", kwarg: true, right: reserved},
}

// PermittableFields returns the fields that an administrator may permit to callers without all
// rights.
func PermittableFields() (names []string) {
	for _, f := range fields {
		if f.right == permittable {
			names = append(names, f.name)
		}
	}
	return names
}

// limitLoad returns the load of a caller without all rights, reduced to the fields that he may set.
// It refuses a field that he may not set, because an accepted field must be obeyed, except if its
// value is empty, as the clients' defaults are.
func (l Limits) limitLoad(c Caller, sent *value.Map) (*value.Map, error) {
	load, kwargs := value.NewMap(), value.NewMap()
	for _, f := range fields {
		from, to := sent, load
		if f.kwarg {
			from, to = sent.Map("kwargs"), kwargs
		}

		v, given := from.Get(f.name)
		if !given || v == nil {
			continue
		}

		switch err := l.mayHave(f, v); {
		case err != nil && !value.Truth(v):
			continue
		case err != nil:
			return nil, err
		}

		to.Set(f.name, v)
	}

	ret, err := l.returners(sent.Value("ret"))
	if err != nil {
		return nil, err
	}

	if name, found := posesAsField(load.Value("arg")); found && c.Minion == "" {
		return nil, refuse("the argument %.100q is one that minions make of the fields of a job: leave it out", name)
	}

	load.Set("ret", ret)
	load.Set("user", c.User)
	if _, ok := load.Get("arg"); !ok {
		load.Set("arg", []any{})
	}

	if c.Minion != "" {
		kwargs.Set("id", c.Minion)
	}

	if kwargs.Len() > 0 {
		load.Set("kwargs", kwargs)
	}

	return load, nil
}

func (l Limits) mayHave(f field, v any) error {
	switch {
	case f.right == reserved:
		return refuse("%s is for callers with all rights only: leave it out", f.name)
	case f.right == permittable && !slices.Contains(l.Fields, f.name):
		return refuse("%s is for callers with all rights: leave it out, or let an administrator permit it in saltern_user_publish_fields",
			f.name)
	case !f.fits(v):
		return refuse("%s must be %s", f.name, f.form)
	}
	return nil
}

// returners returns ret, which is a list of names separated by commas, or refuses it.
func (l Limits) returners(ret any) (string, error) {
	if !value.Truth(ret) {
		return "", nil
	}

	text, ok := ret.(string)
	if !ok {
		return "", refuse("ret must be text")
	}

	for name := range strings.SplitSeq(text, ",") {
		may := name == "" || name == l.ExtJobCache || slices.Contains(l.Returners, name) ||
			slices.Contains(l.Returners, "*")
		if !may {
			return "", refuse("the returner %.100q is for callers with all rights: leave it out, or let an administrator permit it in saltern_user_returners",
				name)
		}
	}

	return text, nil
}

// fieldPrefix begins the names of the arguments in which minions give functions the job's fields
// (salt/minion.py load_args_and_kwargs).
const fieldPrefix = "__pub_"

// posesAsField returns the first argument that a function would take for a field of the job: for
// example x509.sign_remote_certificate reads in __pub_id whose certificate it may sign. (A field that
// is sent overrides such an argument, as the id of a minion's job does.) Named arguments are in a
// map, or are text (KWARG_REGEX of salt/utils/args.py); those of a compound job are in lists.
func posesAsField(arg any) (name string, found bool) {
	switch arg := arg.(type) {
	case string:
		name, _, found = strings.Cut(arg, "=")
		return name, found && strings.HasPrefix(name, fieldPrefix)
	case []byte:
		return posesAsField(string(arg))
	case []any:
		for _, a := range arg {
			if name, found := posesAsField(a); found {
				return name, true
			}
		}
	case *value.Map:
		if _, named := arg.Get("__kwarg__"); !named {
			return "", false
		}

		for k := range arg.All() {
			if name := value.Str(k); strings.HasPrefix(name, fieldPrefix) {
				return name, true
			}
		}
	}

	return "", false
}

func isType[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

func anything(any) bool { return true }

func isFunction(v any) bool {
	_, ok := Functions(value.NewMap("fun", v))
	return ok
}

func isTarget(v any) bool {
	list, ok := v.([]any)
	return isType[string](v) || ok && !slices.ContainsFunc(list, func(e any) bool { return !isType[string](e) })
}

func isNumber(v any) bool { return isType[int64](v) || isType[float64](v) }
