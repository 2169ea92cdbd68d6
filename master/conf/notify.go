package conf

import (
	"log/slog"

	"saltern/master/internal/notify/rules"
)

// notifications reads the rules of saltern_notify, and adds a note for each that cannot be obeyed.
func (a *assembly) notifications(m *Master) {
	var faults []error
	m.NotifyRules, faults = rules.Parse(m.Notify)
	for _, err := range faults {
		a.remark(slog.LevelError, "saltern_notify", "%v: the rule sends nothing", err)
	}
}
