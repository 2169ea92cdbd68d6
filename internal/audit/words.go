package audit

import (
	"slices"
	"strconv"
	"strings"
)

// Who returns the actor's name for people. The text may be as long as the actor's fields, and is
// untrusted.
func (a Actor) Who() string {
	switch {
	case a.Proof == Unproven:
		return a.User + " (unproven)"
	case a.As != "" && a.As != a.User:
		return a.User + " as " + a.As
	case a.Eauth != "":
		return a.User + " (" + a.Eauth + ")"
	}
	return a.User
}

// Whence returns where the actor acted from: the address, and the program that forwarded the
// request.
func (a Actor) Whence() string {
	if a.Via != "" {
		return a.From + " via " + a.Via
	}
	return a.From
}

// What returns the function, the object and the number of minions of a record as text.
func (r Record) What() string {
	text := strings.TrimSpace(r.Function + " " + r.Object)
	if r.Minions > 0 {
		text += " (" + strconv.Itoa(r.Minions) + ")"
	}
	return text
}

// Settled returns the list without the Asked records whose outcome is in the list.
func Settled(list []Record) []Record {
	ended := map[string]bool{}
	for _, r := range list {
		if r.Op != "" && r.Result != Asked {
			ended[r.Op] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(r Record) bool { return r.Result == Asked && ended[r.Op] })
}
