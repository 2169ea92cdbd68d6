package batch

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"saltern/master/value"
)

// Command is the command by which tools start a job that the master sends to a part of its minions at
// a time. Salt's master does not know it, so it starts nothing.
const Command = "saltern_publish_batch"

// Field is the field of the load of [Command] that holds the map of a [Spec].
const Field = "batch"

// Spec says how a batch proceeds.
type Spec struct {
	Size     string        // number of minions at a time, up to MaxSize, or a percentage of those that answer
	Wait     time.Duration // how long a minion occupies its place after its return
	Failhard bool          // stop after the first minion that returns an error
	Timeout  time.Duration // how long a minion may take
	// LateGoesOn means that with Failhard only a return stops the batch, no minion that is late, as with Salt's tools.
	LateGoesOn bool
	// Ping is how long the minions have to answer the ping before the batch; 0: the option timeout. The master waits no
	// longer than 90 seconds, also if Ping is longer.
	Ping time.Duration
}

// Bounds of a Spec.
const (
	LongestWait = 24 * time.Hour // bounds each of its times
	MaxSize     = 1_000_000      // minions at a time
)

const defaultTimeout = 30 * time.Minute

// Map returns the map that [ReadSpec] reads.
func (s Spec) Map() *value.Map {
	m := value.NewMap(
		"size", s.Size,
		"wait", s.Wait.Seconds(),
		"failhard", s.Failhard,
		"timeout", s.Timeout.Seconds(),
	)
	if s.LateGoesOn {
		m.Set("late_goes_on", true)
	}
	if s.Ping > 0 {
		m.Set("ping", s.Ping.Seconds())
	}
	return m
}

// ReadSpec reads the map of a Spec. The error names the setting and the valid values; whoever sent the
// map may see it. Without a timeout it is 30 minutes.
func ReadSpec(m *value.Map) (Spec, error) {
	s := Spec{Size: strings.TrimSpace(m.Str("size"))}
	if _, err := SizeOf(s.Size, 1); err != nil {
		return s, err
	}

	var err error
	if s.Wait, err = spanOf(m, "wait", 0); err != nil {
		return s, err
	}
	if s.Timeout, err = spanOf(m, "timeout", defaultTimeout); err != nil {
		return s, err
	}
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}

	if s.Ping, err = spanOf(m, "ping", 0); err != nil {
		return s, err
	}

	for name, flag := range map[string]*bool{"failhard": &s.Failhard, "late_goes_on": &s.LateGoesOn} {
		switch v := m.Value(name).(type) {
		case nil:
		case bool:
			*flag = v
		default:
			return s, fmt.Errorf("%s of a batch is True or False", name)
		}
	}
	return s, nil
}

// spanOf returns the number of seconds with this key as a duration.
func spanOf(m *value.Map, key string, def time.Duration) (time.Duration, error) {
	if m.Value(key) == nil {
		return def, nil
	}
	n := numberIn(m, key, math.NaN())
	if !(n >= 0 && n <= LongestWait.Seconds()) {
		return 0, fmt.Errorf("%s of a batch is a number of seconds, at most %.0f", key, LongestWait.Seconds())
	}
	return time.Duration(n * float64(time.Second)), nil
}

// SizeOf returns how many of n minions get the job at a time: at least 1. spec is a number from 1 on,
// or a percentage above 0 and up to 100.
func SizeOf(spec string, n int) (int, error) {
	bad := fmt.Errorf("the size of a batch is a number of minions, such as 10, or a percentage of them, such as 25%%: not %.40q", spec)
	text, isPercent := strings.CutSuffix(spec, "%")
	if !isPercent {
		size, err := strconv.Atoi(spec)
		if err != nil || size < 1 || size > MaxSize {
			return 0, bad
		}
		return size, nil
	}

	percent, err := strconv.ParseFloat(text, 64)
	if err != nil || !(percent > 0 && percent <= 100) {
		return 0, bad
	}
	return max(int(percent/100*float64(n)), 1), nil
}
