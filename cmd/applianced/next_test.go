package main

import (
	"regexp"
	"strings"
	"testing"

	"saltern/supervisor/status"
)

// TestNextStepsExist: what the status tells people to type is there to be
// typed.
func TestNextStepsExist(t *testing.T) {
	verb := regexp.MustCompile(`applianced ((?:[a-z-]+ ?)+)`)
	n := 0
	for _, k := range status.Kinds() {
		for _, m := range verb.FindAllStringSubmatch(k.Next, -1) {
			n++
			words := strings.Fields(m[1])
			root := rootCommand()
			cmd, rest, err := root.Find(words[:1])
			if err != nil || cmd == root || len(rest) > 0 {
				t.Errorf("%s tells people to run applianced %s, which is not there", k.Code, words[0])
				continue
			}

			if len(words) > 1 && cmd.HasSubCommands() {
				if sub, _, err := root.Find(words[:2]); err != nil || sub == cmd && cmd.Args == nil {
					t.Errorf("%s tells people to run applianced %s, which is not there", k.Code,
						strings.Join(words[:2], " "))
				}
			}
		}
	}

	if n < 20 {
		t.Errorf("only %d found", n)
	}
}
