package notify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/internal/audit"
	"saltern/master/internal/notify/rules"
	"saltern/master/pattern"
	"saltern/master/runner"
	"saltern/master/value"
)

// defaultSilence is how long a silence lasts if its caller does not say.
const defaultSilence = 60 // minutes

// AddRunners adds the runners notify.*, which Salt does not have. s may be nil: there are no rules.
func (s *Service) AddRunners(t *runner.Table) {
	t.Add("notify.list", s.runner(s.list, "list()"))
	t.Add("notify.test", s.runner(s.test, "test(rule)", "rule"))
	t.Add("notify.silence", s.runner(s.silence, "silence(name, minutes=60, until=None, rule=None, minions=None, kind=None)",
		"name", "minutes", "until", "rule", "minions", "kind"))
	t.Add("notify.unsilence", s.runner(s.unsilence, "unsilence(name)", "name"))
}

// runner returns a runner function with named parameters, which its caller may also give by position.
func (s *Service) runner(do func(ctx context.Context, args *value.Map) (any, error), usage string, params ...string) runner.Func {
	return func(ctx context.Context, _ *runner.Env, args []any, named *value.Map) (any, error) {
		given := value.NewMap()
		if len(args) > len(params) {
			return nil, &runner.ArgumentError{Reason: fmt.Sprintf("%s takes at most %d arguments", usage, len(params)), Usage: usage}
		}
		for i, v := range args {
			given.Set(params[i], v)
		}
		for _, k := range named.Keys() {
			if strings.HasPrefix(k, "__") {
				continue
			}
			if _, twice := given.Get(k); twice || !slices.Contains(params, k) {
				return nil, &runner.ArgumentError{Reason: fmt.Sprintf("%s does not take %.40q here", usage, k), Usage: usage}
			}
			given.Set(k, named.Value(k))
		}
		for _, k := range []string{"name", "rule", "minions", "kind"} { // without one, a silence is of all
			if _, err := runner.TextArgument(k, given.Value(k)); err != nil {
				return nil, &runner.ArgumentError{Reason: err.Error(), Usage: usage}
			}
		}
		if s == nil {
			return nil, fmt.Errorf("the option saltern_notify has no rules; docs/notifications.md shows how to write them")
		}
		return do(ctx, given)
	}
}

// list returns rules, destinations and silences.
func (s *Service) list(context.Context, *value.Map) (any, error) {
	now := s.cfg.Now()
	owner, _ := s.maySend()
	out := value.NewMap("sends", owner)

	destinations := value.NewMap()
	for _, d := range s.senders {
		destinations.Set(d.to.Name, d.describe())
	}
	described := value.NewMap()
	for i := range s.cfg.Rules {
		described.Set(s.cfg.Rules[i].Name, describeRule(&s.cfg.Rules[i]))
	}
	silenced := value.NewMap()
	for _, one := range s.silences.inForce(now) {
		silenced.Set(one.Name, describeSilence(&one))
	}

	out.Set("rules", described)
	out.Set("destinations", destinations)
	out.Set("silences", silenced)
	out.Set("lost", int64(s.outbox.Lost()+s.unheard.Load()))
	return out, nil
}

func describeRule(r *rules.Rule) *value.Map {
	on := []any{}
	for _, kind := range r.On {
		on = append(on, string(kind))
	}
	m := value.NewMap("on", on)
	for key, list := range map[string][]string{"minions": r.Minions, "functions": r.Functions, "codes": r.Codes} {
		if len(list) > 0 {
			m.Set(key, value.List(list))
		}
	}
	if quiet := r.Quiet.String(); quiet != "" {
		m.Set("quiet", quiet)
	}
	m.Set("dedupe", r.Dedupe.Seconds())
	m.Set("limit", int64(r.Limit))
	return m
}

func describeSilence(one *Silence) *value.Map {
	m := value.NewMap("until", one.Until.UTC().Format(time.RFC3339))
	for _, part := range [][2]string{{"rule", one.Rule}, {"minions", one.Minions}, {"kind", string(one.Kind)}, {"by", one.By}} {
		if part[1] != "" {
			m.Set(part[0], part[1])
		}
	}
	return m
}

// describe returns a destination without its address, which may be secret.
func (d *sender) describe() *value.Map {
	waiting, counts := d.service.outbox.counts(d.to.ID)
	m := value.NewMap("by", d.to.Kind(), "waiting", int64(waiting))
	m.Set(string(Sent), int64(counts[Sent]))
	for _, outcome := range []Outcome{Repeated, Silenced, Unselected, Refused, Expired} {
		if n := counts[outcome]; n > 0 {
			m.Set(string(outcome), int64(n))
		}
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lastErr != "" {
		m.Set("error", d.lastErr)
		m.Set("failing_since", d.failing.UTC().Format(time.RFC3339))
	}
	return m
}

// test sends a test message to the destinations of a rule.
func (s *Service) test(ctx context.Context, args *value.Map) (any, error) {
	rule := args.Str("rule")
	if rule == "" {
		return nil, &runner.ArgumentError{Reason: "test() missing 1 required positional argument: 'rule'", Usage: "test(rule)"}
	}
	results, err := s.Try(ctx, rule, userOf(ctx))
	if err != nil {
		return nil, err
	}

	out := value.NewMap()
	for _, d := range s.senders {
		result, tried := results[d.to.Name]
		switch {
		case !tried:
		case result != nil:
			out.Set(d.to.Name, "failed: "+result.Error())
		default:
			out.Set(d.to.Name, "accepted")
		}
	}
	return out, nil
}

// silence keeps messages from being sent for a time.
func (s *Service) silence(ctx context.Context, args *value.Map) (any, error) {
	now := s.cfg.Now()
	until, err := untilOf(args, now)
	if err != nil {
		return nil, err
	}

	one := Silence{
		Name:    args.Str("name"),
		Rule:    args.Str("rule"),
		Minions: args.Str("minions"),
		Kind:    rules.Kind(args.Str("kind")),
		Until:   until,
		By:      userOf(ctx),
		Set:     now,
	}
	if one.Kind != "" && !rules.IsKind(one.Kind) {
		return nil, &runner.ArgumentError{Reason: fmt.Sprintf("there is no kind %.40q: %s", one.Kind, rules.KindNames())}
	}
	if one.Rule != "" && !slices.ContainsFunc(s.cfg.Rules, func(r rules.Rule) bool { return pattern.Glob(one.Rule, r.Name) }) {
		return nil, &runner.ArgumentError{Reason: fmt.Sprintf("there is no rule %.80q; notify.list names the rules", one.Rule)}
	}
	if strings.LastIndexByte(one.Minions, '[') > strings.LastIndexByte(one.Minions, ']') {
		return nil, &runner.ArgumentError{Reason: fmt.Sprintf("minions is a glob, and in %.80q a [ has no ]", one.Minions)}
	}
	if !one.valid() {
		return nil, &runner.ArgumentError{
			Reason: "silence() takes a name, and texts of one line of at most 255 bytes; it lasts a year at most",
		}
	}

	if err := s.putSilence(one); err != nil {
		return nil, err
	}
	return describeSilence(&one), nil
}

// untilOf returns the end of a silence.
func untilOf(args *value.Map, now time.Time) (time.Time, error) {
	if args.Value("until") != nil && args.Value("minutes") != nil {
		return now, &runner.ArgumentError{Reason: "either minutes or until says how long a silence lasts, not both"}
	}
	if v, given := args.Get("until"); given && v != nil {
		text, _ := v.(string)
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
			if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
				if !at.After(now) {
					return at, &runner.ArgumentError{Reason: "until is not in the future"}
				}
				return at, nil
			}
		}
		return now, &runner.ArgumentError{Reason: "until has to be a time like 2026-12-24T18:00, or 2026-12-24T18:00:00Z"}
	}

	minutes := int64(defaultSilence)
	if v, given := args.Get("minutes"); given && v != nil {
		n, ok := args.Int("minutes")
		if !ok || n <= 0 || n > int64(longestSilence/time.Minute) {
			return now, &runner.ArgumentError{Reason: "minutes has to be a whole number above 0, and a year at most"}
		}
		minutes = n
	}
	return now.Add(time.Duration(minutes) * time.Minute), nil
}

// unsilence ends a silence.
func (s *Service) unsilence(_ context.Context, args *value.Map) (any, error) {
	name := args.Str("name")
	now := s.cfg.Now()
	for _, one := range s.silences.inForce(now) {
		if one.Name != name {
			continue
		}
		one.Ended = true
		one.Until = now
		one.Set = later(one.Set, now)
		return true, s.putSilence(one)
	}
	return nil, fmt.Errorf("there is no silence %.80q; notify.list names those in force", name)
}

// later returns a time after before: now, unless the clock of another node is ahead.
func later(before, now time.Time) time.Time {
	if now.After(before) {
		return now
	}
	return before.Add(time.Millisecond)
}

// putSilence stores a silence here and at the other masters. A master that cannot be reached gets it
// when it is back.
func (s *Service) putSilence(one Silence) error {
	for _, known := range s.silences.known() {
		if known.Name == one.Name {
			one.Set = later(known.Set, one.Set)
		}
	}
	if _, err := s.silences.put(s.cfg.Now(), one); err != nil {
		return err
	}
	s.tell("", &peerMessage{Silences: []Silence{one}})
	return nil
}

func userOf(ctx context.Context) string {
	who, _ := audit.ActorOf(ctx)
	return who.User
}
