package console

import (
	"time"

	"saltern/master/value"
)

// batchProgress is how far the batch of a job is.
type batchProgress struct {
	All, Size, Begun int
	Absent           int    // minions that did not answer a ping, and get no job
	Master           string // id of the master that runs the batch; "" if it is not known
	Away             bool   // that master does not answer
	Removed          bool   // that master is none of the cluster any more
	OfSaved          bool   // a saved job has started it
	// Known means that the master that runs the batch says how far it is. Only it knows the following
	// fields.
	Known   bool
	Pending int    // minions that will get the job later
	Unsent  int    // minions that the job could not be sent to
	Halted  string // why it was stopped, or ""
	Rest    string // URL of the form to run the job on the minions that do not have it; "" if that is impossible
}

// batchOf returns how far the batch of a job is, or nil for a job without one. m is the job as
// jobs.list_job describes it.
func batchOf(m *value.Map) *batchProgress {
	of := m.Map("Batch")
	if of == nil {
		return nil
	}
	number := func(name string) int {
		n, _ := of.Int(name)
		return int(n)
	}

	p := &batchProgress{
		All:    number("minions"),
		Size:   number("size"),
		Begun:  len(m.Texts("Minions")),
		Absent: number("absent"),
		Master: briefName(of.Str("master")),
		Away:   of.Bool("away"),
		Halted: briefName(of.Str("halted")),

		Removed: of.Bool("removed"),
		OfSaved: m.Map("Saved") != nil,
	}
	if _, p.Known = of.Get("pending"); p.Known {
		p.Pending = number("pending")
		others := max(p.All-p.Begun-p.Pending, 0)
		p.Absent = min(p.Absent, others)
		p.Unsent = others - p.Absent
	}
	return p
}

// LeftAside returns the number of minions that the job was not and will not be sent to, though nobody stopped it.
func (p *batchProgress) LeftAside() int { return p.Absent + p.Unsent }

// GoesOn reports whether further minions may get the job.
func (p *batchProgress) GoesOn() bool {
	if p == nil || p.Removed {
		return false
	}
	if p.Known {
		return p.Halted == "" && p.Pending > 0
	}
	return p.Halted == "" && p.Begun > 0 && p.Begun < p.All-p.Absent
}

// StoppedEarly reports whether the batch was stopped before all minions had the job.
func (p *batchProgress) StoppedEarly() bool {
	if p.Known {
		return p.Halted != "" && p.Pending > 0
	}
	return p.Halted != "" && p.Begun < p.All-p.Absent
}

// LeftOut reports whether the batch ended with its master before all minions had the job.
func (p *batchProgress) LeftOut() bool { return p.Removed && p.Begun < p.All-p.Absent }

// goesOnFor reports whether a page should wait for further minions: of a batch whose master says nothing
// for an hour, as for returns.
func (p *batchProgress) goesOnFor(age time.Duration) bool {
	return p.GoesOn() && (p.Known || age < liveFor)
}
