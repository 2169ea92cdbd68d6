package master

import (
	"saltern/master/internal/schedule"
	"saltern/master/value"
)

// openSchedule creates the part that runs the jobs of the option schedule.
func (m *Master) openSchedule() {
	c := m.cfg
	var records *schedule.Records
	if path := m.cluster.ScheduleRecord(); path != "" {
		records = schedule.OpenRecords(path)
	}

	m.schedule = schedule.New(schedule.Config{
		Plan:      c.Plan,
		Problems:  c.PlanProblems,
		Saved:     savedEntries{m.savedStore},
		Runs:      m.runs,
		IDs:       m.jids,
		Fire:      m.fire,
		ID:        c.ID,
		Returners: scheduleReturners(c.Raw),
		Workers:   c.ReactorThreads,
		Own:       m.cluster.Own,
		Records:   records,
		Now:       m.now,
		Problem:   m.problems.Report,
		Log:       m.log,
	})

	m.schedule.AddRunners(m.runs.Table)
}

// scheduleReturners returns the returners in the option schedule_returner, which is a name or a
// list of names.
func scheduleReturners(options *value.Map) []string {
	if name := options.Str("schedule_returner"); name != "" {
		return []string{name}
	}
	return options.Texts("schedule_returner")
}
