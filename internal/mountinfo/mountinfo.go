// Package mountinfo reads the lines of proc_pid_mountinfo(5), in which the kernel lists the mounts
// that a process sees.
package mountinfo

import (
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Self is the file with the mounts of this process. If several mounts have the same mount point,
// the last one hides the others.
const Self = "/proc/self/mountinfo"

// Mount is one line of the file. The fields behind the separator are empty if the line has no
// separator.
type Mount struct {
	Device       string // number of the device, such as 8:1
	Point        string // mount point, without escapes
	Options      string // options of the mount
	Type         string // type of the file system
	Source       string // mounted device or share, without escapes
	SuperOptions string // options of the file system
}

// ParseLine parses one line. It returns false for a line without a mount point.
func ParseLine(line string) (m Mount, ok bool) {
	// The kernel puts one space between two fields, also beside an empty source. Other white space
	// may be a part of a name.
	fields := strings.Split(strings.TrimSuffix(line, "\n"), " ")
	if len(fields) < 5 {
		return Mount{}, false
	}

	m.Device = fields[2]
	m.Point = unescape(fields[4])
	if len(fields) < 6 {
		return m, true
	}

	m.Options = fields[5]
	separator := slices.Index(fields[6:], "-")
	if separator < 0 {
		return m, true
	}

	after := fields[6+separator+1:]
	if len(after) >= 2 {
		m.Type = after[0]
		m.Source = unescape(after[1])
	}
	if len(after) >= 3 {
		m.SuperOptions = after[2]
	}
	return m, true
}

// Parse yields the mounts of a table, in its order.
func Parse(table string) iter.Seq[Mount] {
	return func(yield func(Mount) bool) {
		for line := range strings.Lines(table) {
			if m, ok := ParseLine(line); ok && !yield(m) {
				return
			}
		}
	}
}

// unescape decodes \040 and similar sequences.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}

	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}

		b.WriteByte(s[i])
	}

	return b.String()
}
