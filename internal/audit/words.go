package audit

import (
	"slices"
	"strconv"
	"strings"
)

// Who names an actor for people. The text may be as long as those in the actor, and foreign.
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

// Whence describes where he acted from.
func (a Actor) Whence() string {
	if a.Via != "" {
		return a.From + " via " + a.Via
	}
	return a.From
}

// What describes the object and the function.
func (r Record) What() string {
	text := strings.TrimSpace(r.Function + " " + r.Object)
	if r.Minions > 0 {
		text += " (" + strconv.Itoa(r.Minions) + ")"
	}
	return text
}

// Settled leaves out what was asked for when its end is in the list.
func Settled(list []Record) []Record {
	ended := map[string]bool{}
	for _, r := range list {
		if r.Op != "" && r.Result != Asked {
			ended[r.Op] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(r Record) bool { return r.Result == Asked && ended[r.Op] })
}
