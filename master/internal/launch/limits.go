package launch

import (
	"fmt"
	"slices"
	"strings"

	"saltern/master/value"
)

// Limits says which fields callers without all rights may set besides function, arguments and
// target. The zero Limits permits fields that only change the answer.
type Limits struct {
	// Fields are the [PermittableFields] that the site permits (saltern_user_publish_fields).
	Fields []string
	// Returners may be named in ret (saltern_user_returners); "*" stands for any.
	Returners []string
	// ExtJobCache is the returner that Salt's clients add to each job (ext_job_cache,
	// salt/client/__init__.py _prep_pub). The administrator has chosen it for all jobs.
	ExtJobCache string
}

// Refusal is an error whose text is for the caller: what was refused, and what helps.
type Refusal struct{ Text string }

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

func refuse(format string, a ...any) error { return &Refusal{fmt.Sprintf(format, a...)} }

// right is the permission that a field needs from a caller without all rights.
type right uint8

const (
	free        right = iota // gives no power that the function does not have
	permittable              // needs a permission of the site
	reserved                 // for callers with all rights only, such as a syndic
)

// field is one field of a job that clients may send. For a caller without all rights, fields
// without a row here are neither stored nor sent: an unknown field gives no right.
type field struct {
	name  string
	kwarg bool // stands in kwargs of the load
	right right
	fits  func(v any) bool
	form  string // what fits, in words
}

// fields are the fields that salt/master.py _prep_pub sends to minions, and those that change what
// the master does. How minions read them: salt/minion.py _thread_return, the same in 3006, 3007 and
// 3008. Minions send metadata back with the return, as they do the arguments.
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

	// A returner may write files as root, and these say where.
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
	// An executor runs the function in its own way: as another user, in a container.
	{name: "module_executors", kwarg: true, right: permittable, fits: anything},
	{name: "executor_opts", kwarg: true, right: permittable, fits: anything},
	// The job leaves no returns in the job cache.
	{
		name:  "nocache",
		kwarg: true,
		right: permittable,
		fits:  isType[bool],
		form:  "true or false",
	},

	// The owner of the job: a syndic sends it for the master above.
	{name: "master_id", kwarg: true, right: reserved},
	{name: "id", kwarg: true, right: reserved},
	{name: "auth_list", kwarg: true, right: reserved},
}

// PermittableFields are the fields that a site may permit to callers without all rights.
func PermittableFields() (names []string) {
	for _, f := range fields {
		if f.right == permittable {
			names = append(names, f.name)
		}
	}
	return names
}

// limitLoad returns the load of a caller without all rights: the fields that he may set, and
// nothing else. A field that he may not set is refused, unless it is empty as the clients' defaults
// are: what is accepted must be obeyed.
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

// returners reads ret: names separated by commas.
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

// fieldPrefix begins the names of the arguments by which minions give functions the fields of
// a job (salt/minion.py load_args_and_kwargs).
const fieldPrefix = "__pub_"

// posesAsField returns the first argument that a function would take for a field of the job:
// x509.sign_remote_certificate reads in __pub_id whose certificate it may sign. A field that is
// sent overwrites such an argument, as the id of a minion's job does. Named arguments stand in a
// map, or are text (KWARG_REGEX of salt/utils/args.py); those of a compound job stand in lists.
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
