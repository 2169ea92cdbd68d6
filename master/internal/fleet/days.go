package fleet

import (
	"time"

	"saltern/master/history"
	"saltern/master/history/summary"
)

// keptDays is for how many days, in UTC, the table has the results of each minion.
const keptDays = 31

// dayResult is the result of a minion on a day: nothing, answered without running states, or the worst result
// of its runs of states, which is answered + 1 + summary.Result.
type dayResult uint8

const (
	absent   dayResult = 0
	answered dayResult = 1
)

const worstDay = answered + 1 + dayResult(summary.Error)

func dayResultOf(r summary.Result) dayResult { return answered + 1 + dayResult(r) }

// days has the results of a minion on the last keptDays days. The order in which runs are entered does
// not matter, and entering a run again changes nothing, so all masters have the same.
type days struct {
	newest  int32 // the newest day on which the minion answered, see dayOf; 0: it never did
	results [keptDays]dayResult
}

// dayOf returns the number of a time's day in UTC, counted from 1970.
func dayOf(t time.Time) int32 { return int32(t.Unix() / int64(day/time.Second)) }

// dayStart returns the begin of a day.
func dayStart(number int32) time.Time {
	return time.Unix(int64(number)*int64(day/time.Second), 0).UTC()
}

// on returns what the minion did on a day.
func (d *days) on(number int32) dayResult {
	if number > d.newest || number <= d.newest-keptDays || number < 0 {
		return absent
	}
	return d.results[number%keptDays]
}

// forgetAfter forgets the days after latest.
func (d *days) forgetAfter(latest int32) {
	for number := max(latest+1, d.newest-keptDays+1); number <= d.newest; number++ {
		d.results[number%keptDays] = absent
	}
	d.newest = latest
}

// enter adds a run, and reports whether that changed anything. It leaves out a run whose time is ahead of
// the clock. A run that is not makes it forget the days that are: the clock of a master was wrong.
func (d *days) enter(run *history.Run, ranStates bool, now time.Time) (changed bool) {
	result := answered
	if ranStates {
		result = dayResultOf(run.Summary.Result)
	}
	return d.enterDay(dayOf(run.Time), result, now)
}

// merge adds the results of another table, and reports whether that changed anything.
func (d *days) merge(other *days, now time.Time) (changed bool) {
	for number := other.newest - keptDays + 1; number <= other.newest; number++ {
		if result := other.on(number); result != absent && d.enterDay(number, result, now) {
			changed = true
		}
	}
	return changed
}

// enterDay adds a result on a day.
func (d *days) enterDay(number int32, result dayResult, now time.Time) (changed bool) {
	latest := dayOf(now.Add(farthestAhead))
	if number <= 0 || number > latest {
		return false
	}

	if d.newest > latest {
		d.forgetAfter(latest)
		changed = true
	}
	if number <= d.newest-keptDays {
		return changed
	}

	for next := max(d.newest+1, number-keptDays+1); next <= number; next++ {
		d.results[next%keptDays] = absent
	}
	d.newest = max(d.newest, number)

	if slot := &d.results[number%keptDays]; result > *slot {
		*slot = result
		changed = true
	}
	return changed
}
