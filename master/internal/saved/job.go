package saved

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/master/internal/acl"
	"saltern/master/value"
)

// Job is a saved job.
type Job struct {
	// Target is the name of a saved target if TargetType is "", else an expression of that type.
	Target      string
	TargetType  string
	Function    string
	Description string
	Fields      []Field
	Limits
	// MayRun maps systems of external_auth to the users and groups (with a % at the end) that may run
	// the job. "*" means everybody whom the system knows. The system "host" means users of the
	// master's host (publisher_acl).
	MayRun map[string][]string

	args  []any
	named *value.Map // may be nil
}

// Limits bound what one run of a job can break.
type Limits struct {
	Batch     string // number of minions at a time or a percentage of them; "": all at once
	TestFirst bool   // run with test=True first
	// Stops says that a run ends once more than StopAbove percent of its minions have failed.
	Stops     bool
	StopAbove float64
	Timeout   time.Duration // a minion that does not answer for so long counts as failed
}

const (
	maxFields      = 50
	maxArguments   = 100
	maxMayRun      = 500 // users and groups
	defaultTimeout = 30 * time.Minute
	maxTimeout     = 24 * time.Hour
)

var (
	functionForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*$`)
	batchForm    = regexp.MustCompile(`^[1-9][0-9]{0,5}$|^([1-9][0-9]?|100)%$`)
	fieldMark    = regexp.MustCompile(`^\{([a-z][a-z0-9_]{0,39})\}$`)
)

// testable lists the functions that change nothing with test=True (salt/modules/state.py
// _get_test_value). Other functions ignore the argument, and would do their work.
var testable = []string{"state.apply", "state.highstate", "state.sls", "state.sls_id", "state.single", "state.top", "state.high"}

func readJob(name string, settings *value.Map) (*Job, error) {
	f := newForm(settings)
	j := &Job{
		Target:      f.text("target", maxExpression),
		TargetType:  f.text("target_type", 20),
		Function:    f.text("function", 100),
		Description: f.description(),
		args:        f.list("args", maxArguments),
		named:       f.mapping("kwargs"),
	}
	j.Fields = readFields(f)
	j.readLimits(f)
	j.MayRun = readMayRun(f)
	if err := f.end(); err != nil {
		return nil, err
	}

	switch {
	case j.Target == "":
		return nil, badf("target is missing: the name of a saved target, or an expression with its target_type")
	case !functionForm.MatchString(j.Function):
		return nil, badf("%.80q is no function of minions, such as state.apply", j.Function)
	case j.TestFirst && !j.obeysTest():
		return nil, badf("test_first needs a function that obeys test=True: %s", strings.Join(testable, ", "))
	}
	if j.TargetType == "" {
		if err := checkName(j.Target); err != nil {
			return nil, badf("target is no name of a saved target; an expression needs target_type, such as glob")
		}
	} else if err := checkTarget(j.Target, j.TargetType); err != nil {
		return nil, err
	}
	return j, j.checkArguments()
}

func (j *Job) obeysTest() bool { return slices.Contains(testable, j.Function) }

func (j *Job) readLimits(f *form) {
	switch v := f.get("batch").(type) {
	case nil:
	case int64:
		j.Batch = strconv.FormatInt(v, 10)
	case string:
		j.Batch = v
	default:
		f.fail("batch is a number of minions, or a percentage such as 10%%")
	}
	if j.Batch != "" && !batchForm.MatchString(j.Batch) {
		f.fail("batch is a number of minions from 1, or a percentage from 1%% to 100%%, not %.20q", j.Batch)
	}

	j.TestFirst = f.flag("test_first")
	if percent, given := f.number("stop_above"); given {
		j.Stops, j.StopAbove = true, percent
		if percent < 0 || percent >= 100 {
			f.fail("stop_above is a percentage from 0 to 99")
		}
	}

	j.Timeout = defaultTimeout
	seconds, given := f.number("timeout")
	if given {
		j.Timeout = time.Duration(seconds * float64(time.Second))
		if seconds < 1 || seconds > maxTimeout.Seconds() {
			f.fail("timeout is a number of seconds from 1 to %.0f", maxTimeout.Seconds())
		}
	}
	if waits := j.Batch != "" || j.TestFirst; !waits && (j.Stops || given) {
		f.fail("stop_above and timeout need batch or test_first: without them all minions get the job at once")
	}
}

func (f *form) number(key string) (n float64, given bool) {
	switch v := f.get(key).(type) {
	case nil:
		return 0, false
	case int64:
		return float64(v), true
	case float64:
		if v == v {
			return v, true
		}
	}
	f.fail("%s must be a number", key)
	return 0, true
}

// readMayRun reads may_run, which has the form of a part of external_auth without permissions:
// {pam: [alice, 'ops%'], ldap: ['*']}.
func readMayRun(f *form) map[string][]string {
	out := map[string][]string{}
	count := 0
	for k, v := range f.mapping("may_run").All() {
		system, _ := k.(string)
		names, ok := v.([]any)
		if system == "" || !ok {
			f.fail("may_run maps a system of external_auth, or host, to a list of users and groups: {pam: [alice, 'ops%%']}")
		}
		for _, n := range names {
			name, ok := n.(string)
			if !ok || name == "" || name == "%" || len(name) > 256 {
				f.fail("may_run has something that is neither a user nor a group")
			}
			out[system] = append(out[system], name)
			count++
		}
	}
	if count > maxMayRun {
		f.fail("may_run has %d names, at most %d", count, maxMayRun)
	}
	return out
}

// PermitsRun reports whether may_run names a user or one of his groups. system is the part of
// external_auth that proved him; "" means a user of the master's host.
func (j *Job) PermitsRun(system, user string, groups []string) bool {
	if system == "" {
		system = "host"
	}
	return user != "" && slices.ContainsFunc(j.MayRun[system], func(name string) bool {
		if group, isGroup := strings.CutSuffix(name, "%"); isGroup {
			return slices.Contains(groups, group)
		}
		return name == "*" || name == user
	})
}

// checkArguments checks the arguments as they are saved.
func (j *Job) checkArguments() error {
	used := map[string]bool{}
	for _, a := range j.args {
		if err := j.checkMarks(a, used); err != nil {
			return err
		}
	}
	if err := j.checkMarks(j.named, used); err != nil {
		return err
	}
	if acl.HidesNamed(j.args) {
		return badf("an argument in args has the form name=value, which minions read as a named one: write it under kwargs")
	}
	for k := range j.named.All() {
		if name, _ := k.(string); strings.HasPrefix(name, "__") {
			return badf("the named argument %.40q is one that minions make of the fields of a job: leave it out", name)
		}
	}
	if _, given := j.named.Get("test"); given && j.TestFirst {
		return badf("a job with test_first has no argument test")
	}
	for _, field := range j.Fields {
		if !used[field.Name] {
			return badf("no argument has the field %s: write {%s} where its value goes", field.Name, field.Name)
		}
	}
	return nil
}

// checkMarks notes the fields that a value uses. Keys of maps cannot be fields.
func (j *Job) checkMarks(v any, used map[string]bool) error {
	switch v := v.(type) {
	case string:
		mark := fieldMark.FindStringSubmatch(v)
		if mark == nil {
			return nil
		}
		if !slices.ContainsFunc(j.Fields, func(f Field) bool { return f.Name == mark[1] }) {
			return badf("the argument %s means the value of a field, and the job has no field of that name", v)
		}
		used[mark[1]] = true
	case []any:
		for _, e := range v {
			if err := j.checkMarks(e, used); err != nil {
				return err
			}
		}
	case *value.Map:
		for k, e := range v.All() {
			if key, _ := k.(string); key == "__kwarg__" {
				return badf("an argument has the key __kwarg__, which has a meaning for minions")
			}
			if err := j.checkMarks(e, used); err != nil {
				return err
			}
		}
	}
	return nil
}
