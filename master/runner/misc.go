package runner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/printable"
	"saltern/master/event"
	"saltern/master/pattern"
	"saltern/master/value"
)

// miscDefs returns the runners of several small modules of Salt. Sources:
// salt/runners/{test,event,state,config,match,error}.py.
func miscDefs() map[string]def {
	return map[string]def{
		"test.arg": {"* **", func(c *call) (any, error) {
			return value.NewMap("args", append([]any{}, c.args...), "kwargs", c.kwargs), nil
		}},
		"test.raw_arg": {"* **", func(c *call) (any, error) {
			return value.NewMap("args", append([]any{}, c.args...), "kwargs", c.kwargs), nil
		}},
		"test.metasyntactic":     {"locality=", testMetasyntactic},
		"test.stdout_print":      {"", func(c *call) (any, error) { c.printLine("foo"); return "bar", nil }},
		"test.sleep":             {"s_time=", testSleep},
		"test.stream":            {"", testStream},
		"test.get_opts":          {"", func(c *call) (any, error) { return c.Options, nil }},
		"event.send":             {"tag data=", eventSend},
		"state.event":            {"tagmatch= count= quiet= sock_dir= pretty= node=", stateEvent},
		"config.get":             {"key default= delimiter=", configGet},
		"match.compound_matches": {"expr minion_id", matchCompound},
		"error.error":            {"name= message=", errorError},
	}
}

func (c *call) printLine(s string) {
	if c.Out != nil {
		fmt.Fprintln(c.Out, s)
	}
}

func testMetasyntactic(c *call) (any, error) {
	switch c.textOr("locality", "us") {
	case "us":
		return anyList(strings.Fields("foo bar baz qux quux quuz corge grault garply waldo fred plugh xyzzy thud")), nil
	case "uk":
		return anyList(strings.Fields("wibble wobble wubble flob")), nil
	}
	return nil, nil
}

func (c *call) pauseFor(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

func testSleep(c *call) (any, error) {
	s, err := c.number("s_time", 10)
	if err != nil || s < 0 || s > 1e6 {
		return nil, &ArgumentError{Reason: "s_time must be a number of seconds"}
	}
	c.printLine(strconv.FormatFloat(s, 'f', -1, 64))
	return true, c.pauseFor(time.Duration(s * float64(time.Second)))
}

func testStream(c *call) (any, error) {
	for i := 1; i < 100; i++ {
		c.progress("message", fmt.Sprintf("Runner is %d%% done", i))
		if err := c.pauseFor(100 * time.Millisecond); err != nil {
			return nil, err
		}
	}
	return true, nil
}

func eventSend(c *call) (any, error) {
	if err := requirePart("event bus", c.Events == nil); err != nil {
		return nil, err
	}

	data := &value.Map{}
	if v := c.values["data"]; value.Truth(v) {
		m, ok := v.(*value.Map)
		if !ok {
			return nil, &ArgumentError{Reason: fmt.Sprintf("Dict object expected, not '%s'.", textOf(v))}
		}
		data = m
	}

	tag := c.textArgument("tag")
	if does := event.Reserved(tag); does != "" {
		return nil, &ArgumentError{Reason: fmt.Sprintf(
			"the tag %s is kept for %s, on which masters act, and event.send must not order that. Use a tag of your own, such as myapp/deploy/done",
			printable.Line(tag), does)}
	}

	if err := c.Events.Fire(tag, data); err != nil {
		return nil, err
	}

	return true, nil
}

// stateEvent prints events to Out as they arrive, each as tag, tab and JSON.
func stateEvent(c *call) (any, error) {
	if err := requirePart("event bus", c.Events == nil); err != nil {
		return nil, err
	}

	count, err := c.number("count", -1)
	if err != nil {
		return nil, err
	}
	if count == 0 {
		return nil, nil
	}

	pattern := c.textOr("tagmatch", "*")
	quiet := c.flagArgument("quiet", false)
	pretty := c.flagArgument("pretty", false)
	match := expression(pattern)
	left := int(count)

	return nil, c.Events.Listen(c.ctx, func(e event.Event) bool {
		if !match(e.Tag) {
			return true
		}

		if !quiet && c.Out != nil {
			if _, err := fmt.Fprintf(c.Out, "%s\t%s\n", printable.Line(e.Tag), JSON(e.Data, pretty)); err != nil {
				return false // the terminal is closed
			}
		}

		left--
		return left != 0
	})
}

// expression returns a function that reports whether a text matches by the rules of Salt's
// expr_match.
func expression(expr string) func(string) bool {
	return func(s string) bool { return pattern.Expr(s, expr) }
}

func configGet(c *call) (any, error) {
	v, ok := traverse(c.Options, strings.Split(c.textArgument("key"), c.textOr("delimiter", ":")))
	if ok {
		return v, nil
	}
	if d, ok := c.values["default"]; ok {
		return d, nil
	}
	return "", nil
}

// traverse returns the value to which keys lead through maps and lists (salt/utils/data.py
// traverse_dict_and_list). It returns false when there is none.
func traverse(v any, keys []string) (any, bool) {
	for _, k := range keys {
		n, err := strconv.ParseInt(k, 10, 64)
		isNumber := err == nil
		switch x := v.(type) {
		case *value.Map:
			next, ok := x.Get(k)
			if !ok && isNumber {
				next, ok = x.GetAny(n)
			}

			if !ok {
				return nil, false
			}

			v = next
		case []any:
			i := slices.IndexFunc(x, func(e any) bool {
				m, ok := e.(*value.Map)
				if !ok {
					return false
				}

				if isNumber {
					_, ok = m.GetAny(n)
				} else {
					_, ok = m.Get(k)
				}

				return ok
			})

			switch {
			case i >= 0 && isNumber:
				v, _ = x[i].(*value.Map).GetAny(n)
			case i >= 0:
				v, _ = x[i].(*value.Map).Get(k)
			case isNumber && n >= 0 && n < int64(len(x)):
				v = x[n]
			case isNumber && n < 0 && -n <= int64(len(x)):
				v = x[int64(len(x))+n]
			default:
				return nil, false
			}
		default:
			return nil, false
		}
	}

	return v, true
}

// matchCompound matches a compound target. For an invalid expression it reports, like Salt, that
// the target does not match.
func matchCompound(c *call) (any, error) {
	if err := requirePart("targets", c.Targets == nil); err != nil {
		return nil, err
	}
	id := c.textArgument("minion_id")
	ids, err := c.Targets.MatchExact(c.textArgument("expr"))
	if err == nil && slices.Contains(ids, id) {
		return value.NewMap("res", id), nil
	}
	return value.NewMap("res", false), nil
}

func errorError(c *call) (any, error) {
	if name, ok := c.values["name"]; ok && name != nil {
		return nil, &Exception{textOf(name), c.textArgument("message")}
	}
	return &value.Map{}, nil
}
