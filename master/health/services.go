package health

import (
	"errors"
	"fmt"

	"saltern/internal/control"
	"saltern/internal/printable"
	"saltern/master/internal/postgres"
)

// textMost bounds the length of an error's text in the status, in bytes.
const textMost = 300

func (r *Reporter) returners() (list []control.Returner) {
	for _, s := range append(r.EventReturn.Stats(), r.JobReturns.Stats()...) {
		list = append(list, control.Returner{
			Name:    s.Returner,
			Waiting: s.Waiting,
			Done:    s.Done,
			Lost:    s.Lost,
			Refused: s.Refused,
			Error:   printable.Clip(s.Error, textMost),
		})
	}
	return list
}

func (r *Reporter) engines() (list []control.Engine) {
	for _, s := range r.Engines.Stats() {
		list = append(list, control.Engine{
			Name:   s.Name,
			State:  string(s.State),
			Since:  s.Since,
			Starts: s.Starts,
			Error:  printable.Clip(s.Error, textMost),
		})
	}
	return list
}

// watchReturners reports a problem while a returner does not accept records, and when a returner
// has missed records.
func (r *Reporter) watchReturners() {
	var faults []error
	var unhanded uint64
	for _, s := range r.returners() {
		unhanded += s.Lost + s.Refused
		if s.Error != "" {
			faults = append(faults,
				fmt.Errorf("%s takes nothing, %d records wait on the disk: %s", s.Name, s.Waiting, s.Error))
		}
	}

	r.Problems.Report(control.ReturnerFault, errors.Join(faults...))
	if unhanded > r.unhanded {
		r.Problems.Set(control.ReturnerLoss,
			fmt.Errorf("%d records did not get to a returner since the start of the master: they made room for later ones (saltern_returner_spool), found no room on the disk, or it refused them; the log names it",
				unhanded))
	}

	r.unhanded = unhanded
}

// watchEngines reports a problem while an engine does not run.
func (r *Reporter) watchEngines() {
	var faults []error
	for _, s := range r.engines() {
		if s.Error != "" {
			faults = append(faults, fmt.Errorf("%s has ended, and is started again: %s", s.Name, s.Error))
		}
	}
	r.Problems.Report(control.EngineFault, errors.Join(faults...))
}

// postgres returns the figures of PostgreSQL, or nil if the master writes into none.
func (r *Reporter) postgres() *control.Postgres {
	if r.Postgres == nil {
		return nil
	}
	s := r.sink
	return &control.Postgres{
		Waiting:    s.Waiting,
		SpoolBytes: s.Bytes,
		SpoolMost:  s.MaxBytes,
		Written:    s.Written,
		Known:      s.Known,
		Adapted:    s.Adapted,
		Refused:    s.Refused,
		Lost:       s.Lost + s.LostCopies + s.Unkept,
		Unanswered: s.Unanswered,
		Error:      printable.Clip(s.Error, textMost),
		Events:     r.postgresEvents(),
	}
}

func (r *Reporter) postgresEvents() *control.PostgresEvents {
	if r.PostgresEvents == nil {
		return nil
	}
	s := r.sinkOfEvents
	return &control.PostgresEvents{
		Waiting:    s.Waiting,
		SpoolBytes: s.Bytes,
		SpoolMost:  s.MaxBytes,
		Written:    s.Written,
		Adapted:    s.Adapted,
		Refused:    s.Refused,
		Lost:       s.Lost + s.Unkept,
		Error:      printable.Clip(s.Error, textMost),
	}
}

// watchPostgres reports a problem while the database is away, the spool is nearly full or the option is not obeyed,
// and when records did not get to the database.
func (r *Reporter) watchPostgres() {
	if r.Postgres == nil {
		if r.PostgresUnable != nil {
			r.Problems.Set(control.PostgresFault, r.PostgresUnable)
		}
		return
	}
	s := r.Postgres.Stats()
	r.sink = s
	fault := r.Postgres.Fault(s)
	events := r.PostgresEvents.Stats()
	r.sinkOfEvents = events
	if r.PostgresEvents != nil {
		fault = errors.Join(fault, r.PostgresEvents.Fault(events))
	}
	r.Problems.Report(control.PostgresFault, fault)

	missed := s.Lost + s.LostCopies + s.Unkept + s.Refused + events.Lost + events.Unkept + events.Refused
	if missed > r.missed {
		r.Problems.Set(control.PostgresLoss, postgresLoss(s, events))
	}
	r.missed = missed
}

// postgresLoss words which records did not get to the database.
func postgresLoss(s, events postgres.Stats) error {
	var own, copies, missed error
	if n := s.Lost + s.Unkept + s.Refused; n > 0 {
		own = fmt.Errorf("%d records did not get to PostgreSQL since the start of the master: they made room for later "+
			"ones (saltern_postgres: spool), found no room on this node's disk, or the database refused them; "+
			"the log names these", n)
	}
	if s.LostCopies > 0 {
		copies = fmt.Errorf("%d copies of returns of other masters made room for later ones (saltern_postgres: spool): "+
			"PostgreSQL lacks those that their own master did not write", s.LostCopies)
	}
	if n := events.Lost + events.Unkept + events.Refused; n > 0 {
		missed = fmt.Errorf("%d events did not get to PostgreSQL: they made room for later ones (saltern_postgres: "+
			"events_spool), found too little room on this node's disk, or the database refused them", n)
	}
	return errors.Join(own, copies, missed)
}
