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

// The kinds of facts.
const (
	MachineID Kind = "machine" // what its system calls itself: machine-id(5)
	Board     Kind = "board"   // what its firmware says: the UUID of DMI
	Disk      Kind = "disk"    // the serial number of the disk with the node's data
	Cards     Kind = "cards"   // the addresses of its network cards
)

func allKinds() []Kind { return []Kind{MachineID, Board, Disk, Cards} }

// Facts are a machine's facts about itself, as digests. Unknown facts are missing.
type Facts map[Kind]string

// digestBytes is how many bytes of a hash a digest has.
const digestBytes = 8

// Digest hides a fact: machine-id(5) asks that it does not leave the machine. Digests of
// the same fact are equal for the same key only.
func Digest(certificate string, kind Kind, fact string) string {
	sum := sha256.Sum256([]byte(certificate + "\x00" + string(kind) + "\x00" + fact))
	return hex.EncodeToString(sum[:digestBytes])
}

// Likeness says whether two machines are the same one, by their facts.
type Likeness string

// The likenesses.
const (
	Unknown Likeness = "unknown"
	Same    Likeness = "same"
	Other   Likeness = "other"
)

// Compare compares facts with the known facts of a machine. One fact alone decides nothing: a
// card may be replaced, a hypervisor may give another UUID, and the copy of a disk has the
// machine-id of its original.
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

// Check returns what is wrong with facts from elsewhere, or nil.
func (f Facts) Check() error {
	for kind, fact := range f {
		if !slices.Contains(allKinds(), kind) || !digestForm.MatchString(fact) {
			return fmt.Errorf("use of a key: %.20q is no fact about a machine", kind)
		}
	}
	return nil
}

// MaxSpeaker bounds the text of a speaker.
const MaxSpeaker = 512

// Speaker is a machine's description of itself with each request. The zero value comes from an
// older version, which sends none.
type Speaker struct {
	// Life is the running start of its supervisor.
	Life string
	// Beat is drawn again every [BeatEvery], and Before is the one before it. A machine whose
	// memory was copied while it ran has its original's Life, but each of the two draws its own
	// next Beat. Both are "" from an older version.
	Beat, Before string
	// Held reports whether the machine has the node's address of the table of nodes.
	Held  bool
	Facts Facts
}

// String is the speaker as a header has it.
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

// ParseSpeaker reads the text of a speaker. "" gives the zero value. It skips what a later
// version adds.
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
