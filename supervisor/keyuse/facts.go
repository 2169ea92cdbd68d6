package keyuse

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
)

// Kind is a kind of fact about a machine.
type Kind string

// Values of Kind.
const (
	MachineID Kind = "machine" // the system's own identifier: machine-id(5)
	Board     Kind = "board"   // the firmware's UUID (DMI)
	Disk      Kind = "disk"    // the serial number of the disk with the node's data
	Cards     Kind = "cards"   // the hardware addresses of the machine's network cards
)

func allKinds() []Kind { return []Kind{MachineID, Board, Disk, Cards} }

// Facts holds a machine's facts about itself, as digests. It omits unknown facts.
type Facts map[Kind]string

// digestBytes is the length of a digest in bytes.
const digestBytes = 8

// Digest returns a digest that hides a fact, because machine-id(5) requires that the ID does not
// leave the machine. Digests of the same fact are equal only for the same certificate.
func Digest(certificate string, kind Kind, fact string) string {
	sum := sha256.Sum256([]byte(certificate + "\x00" + string(kind) + "\x00" + fact))
	return hex.EncodeToString(sum[:digestBytes])
}

// Likeness says whether two machines are the same, judged by their facts.
type Likeness string

// Values of Likeness.
const (
	Unknown Likeness = "unknown"
	Same    Likeness = "same"
	Other   Likeness = "other"
)

// Compare compares facts with the known facts of a machine. One fact alone decides nothing: a
// network card may be replaced, a hypervisor may assign another UUID, and the copy of a disk has
// the machine-id of the original.
func (f Facts) Compare(known Facts) Likeness {
	equal, different := 0, 0
	for kind, fact := range f {
		switch other, told := known[kind]; {
		case !told:
		case fact == other:
			equal++
		default:
			different++
		}
	}

	switch {
	case different > equal:
		return Other
	case equal > different:
		return Same
	}

	return Unknown
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{16}$`)

// Check returns an error if facts from another machine have an unknown kind or a malformed value.
func (f Facts) Check() error {
	for kind, fact := range f {
		if !slices.Contains(allKinds(), kind) || !digestForm.MatchString(fact) {
			return fmt.Errorf("use of a key: %.20q is no fact about a machine", kind)
		}
	}
	return nil
}

// MaxSpeaker is the largest size of a speaker's text, in bytes.
const MaxSpeaker = 512

// Speaker is the description of itself that a machine sends with each request. A machine with an
// older version sends none, which is the zero value.
type Speaker struct {
	// Life identifies the running start of the machine's supervisor.
	Life string
	// Beat is a random value, drawn again every [BeatEvery]; Before is the previous value. A
	// machine whose memory was copied while it ran has the Life of its original, but each of the
	// two machines draws its own next Beat. A machine with an older version sends neither.
	Beat, Before string
	// Held reports whether the machine has the node's address according to the table of nodes.
	Held  bool
	Facts Facts
}

// String returns the text of the speaker for a header.
func (s Speaker) String() string {
	values := url.Values{"life": {s.Life}}
	if s.Beat != "" {
		values.Set("beat", s.Beat)
		values.Set("before", s.Before)
	}
	if s.Held {
		values.Set("held", "yes")
	}
	for kind, fact := range s.Facts {
		values.Set(string(kind), fact)
	}
	return values.Encode()
}

var lifeForm = regexp.MustCompile(`^[A-Za-z0-9]{1,40}$`)

// ParseSpeaker parses the text of a speaker. For "" it returns the zero value. It skips fields that
// a later version may add.
func ParseSpeaker(text string) (Speaker, error) {
	if text == "" {
		return Speaker{}, nil
	}
	if len(text) > MaxSpeaker {
		return Speaker{}, fmt.Errorf("use of a key: %d bytes about a machine, at most %d", len(text), MaxSpeaker)
	}

	values, err := url.ParseQuery(text)
	if err != nil {
		return Speaker{}, fmt.Errorf("use of a key: what a machine says about itself: %w", err)
	}

	s := Speaker{
		Life:   values.Get("life"),
		Beat:   values.Get("beat"),
		Before: values.Get("before"),
		Held:   values.Get("held") == "yes",
		Facts:  Facts{},
	}

	for _, kind := range allKinds() {
		if fact := values.Get(string(kind)); fact != "" {
			s.Facts[kind] = fact
		}
	}

	if !lifeForm.MatchString(s.Life) {
		return Speaker{}, fmt.Errorf("use of a key: start %.40q is no id", s.Life)
	}

	for _, beat := range []string{s.Beat, s.Before} {
		if beat != "" && !lifeForm.MatchString(beat) {
			return Speaker{}, fmt.Errorf("use of a key: beat %.40q is no id", beat)
		}
	}

	return s, s.Facts.Check()
}
