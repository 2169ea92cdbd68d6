package saved

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/internal/audit"
	"saltern/master/runner"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// function is a runner: the names of its arguments, of which those without "=" are required. "**" at
// the end means any further named arguments.
type function struct {
	params string
	do     func(context.Context, *Service, call) (any, error)
}

// functions returns the runners by name.
func functions() map[string]function {
	return map[string]function{
		"saved.targets":      {"", listTargets},
		jobsRunner:           {"", listJobs},
		"saved.schedules":    {"", listSchedules},
		"saved.show":         {"kind name", show},
		"saved.set_target":   {"name expression type= description= revision=", setTarget},
		"saved.set_job":      {"name revision= **", setJob},
		"saved.set_schedule": {"name revision= **", setSchedule},
		"saved.delete":       {"kind name revision=", remove},
		runRunner:            {"name test= fields= revision= **", run},
		"saved.next":         {"count=", next},
		"saved.export":       {"", export},
		"saved.import":       {"text replace= test=", importText},
	}
}

// AddRunners adds the runners saved.*, which Salt does not have.
func (s *Service) AddRunners(t *runner.Table) {
	s.addOutcome(t)
	for name, f := range functions() {
		t.Add(name, func(ctx context.Context, _ *runner.Env, args []any, named *value.Map) (any, error) {
			order := runner.OrderOf(ctx)
			if order.Minion != "" {
				return nil, errors.New("saved objects are not for minions: call the function itself")
			}
			c := call{by: order.By, schedule: order.Schedule}
			if err := c.bind(f.params, args, named); err != nil {
				return nil, &runner.ArgumentError{Reason: err.Error(), Usage: runner.UsageOf(name, f.params)}
			}
			// What is refused from here on is a failure: for an ArgumentError, the call succeeds.
			return f.do(ctx, s, c)
		})
	}
}

// call is a call of a runner.
type call struct {
	by       runner.Caller
	schedule string // entry of the schedule that calls, or ""

	args map[string]any
	more *value.Map // further named arguments
}

func (c *call) bind(params string, args []any, named *value.Map) error {
	names := strings.Fields(params)
	takesMore := slices.Contains(names, "**")
	names = slices.DeleteFunc(names, func(n string) bool { return n == "**" })
	required := 0
	for i, n := range names {
		plain := strings.TrimSuffix(n, "=")
		if plain == n {
			required = i + 1
		}
		names[i] = plain
	}

	c.args = map[string]any{}
	c.more = value.NewMap()
	if len(args) > len(names) {
		return badf("it takes %d arguments without a name, and %d were given", len(names), len(args))
	}
	for i, v := range args {
		c.args[names[i]] = v
	}
	for k, v := range named.All() {
		name, _ := k.(string)
		_, twice := c.args[name]
		switch {
		case strings.HasPrefix(name, "__"):
		case twice:
			return badf("the argument %.40s was given twice", name)
		case slices.Contains(names, name):
			c.args[name] = v
		case takesMore:
			c.more.Set(name, v)
		default:
			return badf("it has no argument %.40q", name)
		}
	}
	for _, name := range names[:required] {
		if c.args[name] == nil {
			return badf("the argument %s is missing", name)
		}
	}
	return nil
}

// text returns an argument that is text.
func (c *call) text(name string) (string, error) {
	text, ok := c.args[name].(string)
	if !ok && c.args[name] != nil {
		return "", badf("%s must be text: on a command line quote it twice: '\"…\"'", name)
	}
	return text, nil
}

func (c *call) flag(name string) (bool, error) {
	flag, ok := c.args[name].(bool)
	if !ok && c.args[name] != nil {
		return false, badf("%s is True or False", name)
	}
	return flag, nil
}

// revision returns the revision that the caller has seen. It is nil if he has not said.
func (c *call) revision() (*uint64, error) {
	v := c.args["revision"]
	n, ok := v.(int64)
	switch {
	case v == nil:
		return nil, nil
	case !ok || n < 0:
		return nil, badf("revision is the number that saved.show shows, or 0 for an object that is not there")
	}
	seen := uint64(n)
	return &seen, nil
}

// object returns the object that the arguments kind and name mean.
func (c *call) object() (kind Kind, name string, err error) {
	text, err := c.text("kind")
	if err == nil {
		kind, err = parseKind(text)
	}
	if err == nil {
		name, err = c.text("name")
	}
	return kind, name, err
}

// who returns the name that is noted as the author of a change.
func who(by runner.Caller) string {
	if by.Eauth != "" {
		return by.User + " (" + by.Eauth + ")"
	}
	return by.User
}

func show(ctx context.Context, s *Service, c call) (any, error) {
	kind, name, err := c.object()
	if err != nil {
		return nil, err
	}
	o := s.cfg.Store.Newest(ctx).Get(kind, name)
	if o == nil {
		return nil, badf("there is no saved %s %.80q", kind, name)
	}
	return s.describe(o, c.by), nil
}

// describe returns an object as runners show it.
func (s *Service) describe(o *Object, by runner.Caller) *value.Map {
	m := o.withMark()
	if o.Fault != nil {
		m.Set("fault", o.Fault.Error())
	}
	switch {
	case o.Target != nil:
		m.Set("type", o.Target.Type)
		if _, configured := s.cfg.Configured.Get(o.Name); configured {
			m.Set("note", "the option nodegroups has a group of this name, which counts before this one in N@ and -N")
		}
	case o.Job != nil:
		m.Set("runs", mayRun(o.Job, by))
	case o.Schedule != nil:
		m.Set("enabled", o.Schedule.plan.Enabled)
		if len(o.Schedule.Notes) > 0 {
			m.Set("notes", value.List(o.Schedule.Notes))
		}
		if _, configured := s.cfg.Scheduled.Get(o.Name); configured {
			m.Set("note", "the option schedule has an entry of this name: this one does not run")
		}
	}
	return m
}

func (s *Service) list(ctx context.Context, kind Kind, by runner.Caller) *value.Map {
	out := value.NewMap()
	for _, o := range s.cfg.Store.Newest(ctx).All(kind) {
		out.Set(o.Name, s.describe(o, by))
	}
	return out
}

func listTargets(ctx context.Context, s *Service, c call) (any, error) {
	return s.list(ctx, KindTarget, c.by), nil
}

func listSchedules(ctx context.Context, s *Service, c call) (any, error) {
	return s.list(ctx, KindSchedule, c.by), nil
}

// listJobs returns all jobs. A caller without a permission for the runner sees only what he may run,
// and not who else may: withheld names that setting, so that nobody saves the job again without it.
func listJobs(ctx context.Context, s *Service, c call) (any, error) {
	out := value.NewMap()
	for _, o := range s.cfg.Store.Newest(ctx).All(KindJob) {
		m := s.describe(o, c.by)
		if !c.by.Granted {
			if !mayRun(o.Job, c.by) {
				continue
			}
			m.Delete("may_run")
			m.Set("withheld", []any{"may_run"})
		}
		out.Set(o.Name, m)
	}
	return out, nil
}

func setTarget(ctx context.Context, s *Service, c call) (any, error) {
	settings := value.NewMap()
	for _, key := range []string{"expression", "type", descriptionKey} {
		if v := c.args[key]; v != nil {
			settings.Set(key, v)
		}
	}
	return s.set(ctx, KindTarget, c, settings)
}

func setJob(ctx context.Context, s *Service, c call) (any, error) {
	return s.set(ctx, KindJob, c, c.more)
}

func setSchedule(ctx context.Context, s *Service, c call) (any, error) {
	if name, err := c.text("name"); err == nil {
		if o, err := newObject(KindSchedule, name, withoutNone(c.more)); err == nil && o.Schedule.neverRuns(s.cfg.Now()) {
			return nil, badf("schedule %s has no run in the next 50 years: its time has passed, or range and skip_during_range leave none of its times",
				name)
		}
	}
	return s.set(ctx, KindSchedule, c, c.more)
}

// set saves an object as a whole. It returns the object.
func (s *Service) set(ctx context.Context, kind Kind, c call, settings *value.Map) (any, error) {
	name, err := c.text("name")
	if err != nil {
		return nil, err
	}
	seen, err := c.revision()
	if err != nil {
		return nil, err
	}
	settings = withoutNone(settings)
	after, err := s.change(ctx, c.by, "saved.set", string(kind)+" "+name, func(d *draft) error {
		if err := d.set(kind, name, settings, seen); err != nil {
			return err
		}
		return d.checkPatterns(c.by, s.cfg.Store.groups)
	})
	if err != nil {
		return nil, err
	}
	return s.describe(after.Get(kind, name), c.by), nil
}

// withoutNone returns the settings without those that are None, which mean that nothing is set.
func withoutNone(settings *value.Map) *value.Map {
	out := value.Sized(settings.Len())
	for k, v := range settings.All() {
		if v != nil {
			out.Set(k, v)
		}
	}
	return out
}

// change changes objects and records who did so, also when it was refused.
func (s *Service) change(ctx context.Context, by runner.Caller, action, object string, alter func(*draft) error) (*Objects, error) {
	after, err := s.cfg.Store.change(ctx, who(by), alter)
	r := s.record(ctx, by, action, object).Ended(err)
	if _, refused := errors.AsType[invalid](err); refused {
		r.Result = audit.Refused
	}
	s.cfg.Audit.Note(r)
	return after, err
}

// record returns an audit record without its result.
func (s *Service) record(ctx context.Context, by runner.Caller, action, object string) audit.Record {
	actor, known := audit.ActorOf(ctx)
	if !known { // the master's schedule or a reaction
		actor = audit.Actor{User: by.User, Proof: audit.Setting, From: audit.Local}
	}
	return audit.Record{
		Actor:  actor,
		Action: action,
		Object: object,
		JID:    runner.OrderOf(ctx).JID,
	}
}

func remove(ctx context.Context, s *Service, c call) (any, error) {
	kind, name, err := c.object()
	if err != nil {
		return nil, err
	}
	seen, err := c.revision()
	if err != nil {
		return nil, err
	}
	_, err = s.change(ctx, c.by, "saved.delete", string(kind)+" "+name, func(d *draft) error {
		return d.remove(kind, name, seen)
	})
	return err == nil, err
}

// next returns the next runs of the saved schedules.
func next(ctx context.Context, s *Service, c call) (any, error) {
	count := int64(5)
	if v := c.args["count"]; v != nil {
		n, ok := v.(int64)
		if !ok || n < 1 || n > 100 {
			return nil, badf("count is a number from 1 to 100")
		}
		count = n
	}
	runs, err := s.cfg.Schedule.NextRuns(int(count))
	if err != nil {
		return nil, err
	}
	out := value.NewMap()
	for _, o := range s.cfg.Store.Newest(ctx).All(KindSchedule) {
		times := []any{}
		_, configured := s.cfg.Scheduled.Get(o.Name) // the runs are those of the entry in the option
		for _, t := range runs[o.Name] {
			if !configured {
				times = append(times, t.Format(time.RFC3339))
			}
		}
		out.Set(o.Name, times)
	}
	return out, nil
}

func export(ctx context.Context, s *Service, _ call) (any, error) {
	objects := s.cfg.Store.Newest(ctx)
	whole := value.NewMap()
	for _, kind := range kinds() {
		section := value.NewMap()
		for _, o := range objects.All(kind) {
			section.Set(o.Name, o.settings)
		}
		whole.Set(kind.section(), section)
	}
	text, err := saltyaml.EncodeStyle(whole, fileStyle)
	if err != nil {
		return nil, fmt.Errorf("write the saved objects as YAML: %w", err)
	}
	return string(text), nil
}

// importText saves the objects of an export, all or none of them.
func importText(ctx context.Context, s *Service, c call) (any, error) {
	given := c.args["text"]
	if text, ok := given.(string); ok {
		if len(text) > maxFile {
			return nil, badf("the text has %d bytes, at most %d", len(text), maxFile)
		}
		var err error
		if given, err = saltyaml.Decode([]byte(text), "text"); err != nil {
			return nil, badf("the text is not YAML: %v", err)
		}
	}
	whole, ok := given.(*value.Map)
	if !ok {
		return nil, badf("text is the YAML that saved.export returns")
	}
	replace, err := c.flag("replace")
	if err != nil {
		return nil, err
	}
	test, err := c.flag("test")
	if err != nil {
		return nil, err
	}

	var changed []any
	alter := func(d *draft) error {
		if err := d.setAll(whole, replace); err != nil {
			return err
		}
		if err := d.checkPatterns(c.by, s.cfg.Store.groups); err != nil {
			return err
		}
		changed = []any{}
		for _, o := range d.changed {
			changed = append(changed, string(o.Kind)+" "+o.Name)
		}
		return nil
	}
	if test {
		err = s.cfg.Store.try(ctx, who(c.by), alter)
	} else {
		_, err = s.change(ctx, c.by, "saved.import", "", alter)
	}
	if err != nil {
		return nil, err
	}
	return value.NewMap("changed", changed, "test", test), nil
}

// setAll saves all objects of an export.
func (d *draft) setAll(whole *value.Map, replace bool) error {
	for k := range whole.All() {
		if _, err := parseKind(value.Str(k)); err != nil {
			return badf("the parts of the text are targets, jobs and schedules, not %.40q", value.StrMax(k, 40))
		}
	}
	for _, kind := range kinds() {
		section, ok := whole.Value(kind.section()).(*value.Map)
		if !ok && whole.Value(kind.section()) != nil {
			return badf("%s is a map of names", kind.section())
		}
		for k, v := range section.All() {
			name, _ := k.(string)
			settings, ok := v.(*value.Map)
			if !ok {
				return badf("%s %.80q: its settings are a map", kind, name)
			}
			was := d.Get(kind, name)
			if was != nil && !replace && !was.sameSettings(settings) {
				return badf("%s %s exists and differs: give replace=True to replace it", kind, name)
			}
			if err := d.set(kind, name, settings, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
