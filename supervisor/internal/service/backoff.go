package service

import "time"

// Backoff determines the pauses between two runs of a service. The first pause is Min, every
// further one is Factor times longer, up to Max. After a run that lasted at least Stable the pauses
// start again from Min. The zero value stands for [defaultBackoff].
type Backoff struct {
	Min    time.Duration // first pause
	Max    time.Duration // longest pause
	Factor float64       // growth, at least 1
	Stable time.Duration // a run of this length resets the pauses
}

// defaultBackoff is the Backoff of a [Spec] without one: pauses grow from 0.5 s to 30 s, and a run
// of one minute resets them.
func defaultBackoff() Backoff {
	return Backoff{Min: 500 * time.Millisecond, Max: 30 * time.Second, Factor: 2, Stable: time.Minute}
}

func (b Backoff) withDefaults() Backoff {
	d := defaultBackoff()
	if b.Min <= 0 {
		b.Min = d.Min
	}

	if b.Max < b.Min {
		b.Max = max(d.Max, b.Min)
	}

	if b.Factor < 1 {
		b.Factor = d.Factor
	}

	if b.Stable <= 0 {
		b.Stable = d.Stable
	}

	return b
}

// pauser applies a Backoff. It is not safe for concurrent use.
type pauser struct {
	policy Backoff
	next   time.Duration
	fails  int // number of runs in a row that were shorter than Stable
}

func newPauser(b Backoff) *pauser { return &pauser{policy: b.withDefaults()} }

// pauseAfter records that a run has ended, and returns the pause before the next run. ran is how
// long the run lasted.
func (p *pauser) pauseAfter(ran time.Duration) time.Duration {
	if ran >= p.policy.Stable {
		p.reset()
	}
	if p.next == 0 {
		p.next = p.policy.Min
	}
	pause := p.next
	p.fails++
	p.next = min(time.Duration(float64(p.next)*p.policy.Factor), p.policy.Max)
	return pause
}

func (p *pauser) reset() { p.next, p.fails = 0, 0 }
