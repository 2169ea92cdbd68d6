package conf

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"saltern/master/internal/schedule/plan"
	"saltern/master/saltyaml"
)

const scheduleOption = "schedule"

// schedule reads the schedule, including the one inside the option pillar (salt/utils/schedule.py
// _get_schedule), and adds notes about unsupported parts.
func (a *assembly) schedule(m *Master) {
	pillar := a.opts.Map("pillar")
	entries := pillar.Map(scheduleOption).Clone()
	entries.Update(m.Schedule)
	whens := a.opts.Map("grains").Map("whens").Clone()
	whens.Update(pillar.Map("whens"))

	m.Plan, m.PlanProblems = plan.Read(entries, whens)
	for _, e := range m.Plan.Entries {
		if e.Enabled && e.Passed(plan.Civil(time.Now())) {
			m.PlanProblems = append(m.PlanProblems, plan.Problem{
				Entry: e.Key,
				Key:   "once",
				Text:  "this time has passed; the entry does not run any more",
			})
		}
	}

	for _, p := range m.PlanProblems {
		text := p.Text
		if p.Key != "" {
			text = p.Key + ": " + text
		}

		level := slog.LevelWarn
		if p.Refused {
			level = slog.LevelError
		}

		switch {
		case p.Entry == "" && p.Refused:
			text = "the schedule does not run: " + text
		case p.Refused:
			text = fmt.Sprintf("entry %s does not run: %s", p.Entry, text)
		case p.Entry != "":
			text = fmt.Sprintf("entry %s: %s", p.Entry, text)
		}

		o := a.placeIn(scheduleOption, p.Entry, p.Key)
		a.notes = append(a.notes, Note{
			Level:  level,
			Option: scheduleOption,
			Path:   o.path,
			Line:   o.line,
			Text:   text,
		})
	}
}

// placeIn returns the position of a key inside an option. If that position is not known, it returns
// the position of the innermost known key around it, or else that of the option.
func (a *assembly) placeIn(option string, keys ...string) origin {
	keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return key == "" })
	for n := len(keys); n > 0; n-- {
		path := append([]string{option}, keys[:n]...)
		if o, known := a.places[saltyaml.Below(path...)]; known {
			return o
		}
	}
	return a.origins[option]
}
