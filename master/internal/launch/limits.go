package launch

import (
	"fmt"
	"slices"
	"strings"

	"saltern/master/value"
)

// Limits determines which fields a caller without all rights may set in addition to function,
// arguments and target. The zero Limits permits only fields that affect nothing but the answer.
type Limits struct {
	// Fields lists those of the [PermittableFields] that the administrator permits
	// (saltern_user_publish_fields).
	Fields []string
	// Returners lists the returners that a caller may name in ret (saltern_user_returners). "*"
	// means any returner.
	Returners []string
	// ExtJobCache is the returner that Salt's clients add to each job (ext_job_cache,
	// salt/client/__init__.py _prep_pub). It is always permitted, because the administrator chose
	// it for all jobs.
	ExtJobCache string
}

// Refusal is an error whose text the caller may see: the text says what was refused, and what the
// caller can do.
type Refusal struct {
	Text string
	Busy bool // the same request may be accepted later
}

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

func refuse(format string, a ...any) error { return &Refusal{Text: fmt.Sprintf(format, a...)} }

// right is the class of callers who may set a field of a job.
type right uint8

const (
	free        right = iota // every caller may send the field, since it gives the job no further rights
	permittable              // only callers with the administrator's permission
	reserved                 // only callers with all rights, such as a syndic
)

// field is one field of a job that clients may send. If a caller without all rights sends a field
// that is not listed in fields, the field is removed: it is neither stored nor published.
type field struct {
	name  string
	kwarg bool // the field is in kwargs of the load
	right right
	fits  func(v any) bool
	form  string // description of the valid values
}

// fields lists the fields that salt/master.py _prep_pub sends to minions, and the fields that
// affect the master. Minions read the former in salt/minion.py _thread_return, which is the same in
// 3006, 3007 and 3008. Minions return the field metadata unchanged, like the arguments.
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

	// A returner may write files as root. These fields choose the returner and its configuration.
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
	// With nocache the returns of the job are not stored in the job cache.
	{
		name:  "nocache",
		kwarg: true,
		right: permittable,
		fits:  isType[bool],
		form:  "true or false",
	},

	// The following fields name the owner of the job. A syndic sends them on behalf of the master
	// above it.
	{name: "master_id", kwarg: true, right: reserved},
	{name: "id", kwarg: true, right: reserved},
	{name: "auth_list", kwarg: true, right: reserved},
}

// PermittableFields returns the names of the fields that an administrator may permit to callers
// without all rights.
func PermittableFields() (names []string) {
	for _, f := range fields {
		if f.right == permittable {
			names = append(names, f.name)
		}
	}
	return names
}

// limitLoad returns the load of a caller without all rights, reduced to the fields that he may set.
// If the load contains a known field that he may not set, limitLoad returns a Refusal, because a
// job without the field would not be the job that he asked for. It drops such a field if its value
// is empty, because clients send empty values by default.
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

// returners returns ret if the caller may use all returners in it, otherwise a Refusal. ret is a
// list of names, separated by commas.
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

// fieldPrefix is the prefix of the named arguments through which minions pass the job's fields to
// functions (salt/minion.py load_args_and_kwargs).
const fieldPrefix = "__pub_"

// posesAsField returns the name of the first argument that a function would mistake for a field of
// the job. found is false if there is no such argument. For example, x509.sign_remote_certificate
// reads from __pub_id whose certificate it may sign. (If the field itself is sent, as the id of a
// minion's job is, it overrides such an argument.) Named arguments are in a map or in text
// (KWARG_REGEX of salt/utils/args.py); those of a compound job are in lists.
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
