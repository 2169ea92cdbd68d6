package reactor

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"saltern/master/value"
)

// Bounds of the changes that masters of a cluster tell each other.
const (
	maxChanges      = 1000      // tags with a change that a master makes
	maxChangesBytes = 128 << 10 // of all their texts
	// maxMerged is how many times these bounds a master accepts from the others: masters that
	// cannot reach each other may all make changes.
	maxMerged = 8
	// maxStamp bounds the stamps that a master accepts, so that a stamp can always be followed by a
	// later one.
	maxStamp = 1 << 62
)

// stamp orders the changes of all masters: the later stamp counts. A master's stamps follow each
// other and every stamp that it has seen, whatever its clock says.
type stamp struct {
	time   int64  // Unix nanoseconds
	master string // the run of a master, see Rules.self
}

func (s stamp) compare(other stamp) int {
	return cmp.Or(cmp.Compare(s.time, other.time), cmp.Compare(s.master, other.master))
}

// change is how the rules for one tag differ from those of the option.
type change struct {
	stamp   stamp
	removed int      // how many of the option's rules for the tag are removed, the first ones
	files   []string // files of the rule that was added; nil: none was
}

// changes holds the changes by tag. Masters that have merged the same changes, in whatever order,
// hold the same changes.
type changes map[string]change

// merge adopts the changes that are later than those in c. It reports whether it has adopted any,
// and whether c has changes that newer lacks.
func (c changes) merge(newer changes) (adopted, lacking bool) {
	for tag, theirs := range newer {
		if ours, known := c[tag]; !known || ours.stamp.compare(theirs.stamp) < 0 {
			c[tag] = theirs
			adopted = true
		}
	}

	for tag, ours := range c {
		theirs, known := newer[tag]
		lacking = lacking || !known || theirs.stamp.compare(ours.stamp) < 0
	}
	return adopted, lacking
}

// applyTo returns the rules of the option with the changes. Rules that were added come last, in the
// order of their stamps.
func (c changes) applyTo(option Map) Map {
	var out Map
	removed := map[string]int{}
	for _, r := range option.rules {
		if removed[r.tag] < c[r.tag].removed {
			removed[r.tag]++
			continue
		}
		out.rules = append(out.rules, r)
	}

	tags := slices.SortedFunc(maps.Keys(c), func(a, b string) int { return c[a].stamp.compare(c[b].stamp) })
	for _, tag := range tags {
		if files := c[tag].files; files != nil {
			out.rules = append(out.rules, rule{tag, files})
		}
	}
	return out
}

// within reports whether the changes are within the bounds for one master, multiplied by times.
func (c changes) within(times int) bool {
	bytes := 0
	for tag, x := range c {
		bytes += len(tag)
		for _, file := range x.files {
			bytes += len(file)
		}
	}
	return len(c) <= times*maxChanges && bytes <= times*maxChangesBytes
}

// nextStamp returns the stamp of a change that master makes at a time.
func (c changes) nextStamp(now time.Time, master string) stamp {
	next := now.UnixNano()
	for _, x := range c {
		next = max(next, x.stamp.time+1)
	}
	return stamp{next, master}
}

// Fields of the event by which a master tells the other masters all changes that it knows.
const (
	changesField = "changes"
	tagField     = "tag"
	removedField = "removed"
	filesField   = "files"
	timeField    = "time"
	masterField  = "master"
)

// toEvent returns the data of that event.
func (c changes) toEvent() *value.Map {
	list := []any{}
	for _, tag := range slices.Sorted(maps.Keys(c)) {
		x := c[tag]
		list = append(list, value.NewMap(
			tagField, tag,
			removedField, int64(x.removed),
			filesField, value.List(x.files),
			timeField, x.stamp.time,
			masterField, x.stamp.master))
	}
	return value.NewMap(changesField, list)
}

// changesOf returns the changes in the data of that event. ok is false if they are no changes, or
// more than masters tell each other.
func changesOf(data *value.Map) (found changes, ok bool) {
	list := data.List(changesField)
	if list == nil || len(list) > maxMerged*maxChanges {
		return nil, false
	}

	found = changes{}
	for _, e := range list {
		entry, isMap := e.(*value.Map)
		if !isMap {
			return nil, false
		}

		tag := entry.Str(tagField)
		removed, isCount := entry.Value(removedField).(int64)
		time, isTime := entry.Value(timeField).(int64)
		files, all := textsIn(entry.Value(filesField))
		if tag == "" || !isCount || !isTime || !all || removed < 0 || removed > maxRules || time < 0 || time > maxStamp {
			return nil, false
		}

		found[tag] = change{
			stamp:   stamp{time, entry.Str(masterField)},
			removed: int(removed),
			files:   files,
		}
	}
	return found, found.within(maxMerged)
}
