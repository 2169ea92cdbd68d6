package status

import (
	"fmt"
	"strings"

	"saltern/internal/control"
)

// addPython adds lines about the returners of events and the engines. With enough brevity it adds
// only those with trouble.
func (t *wording) addPython(m *Master) {
	var returners, engines []string
	for _, r := range m.Returners {
		if t.brief < briefServices || r.Error != "" {
			returners = append(returners, returnerLine(r))
		}
	}

	for _, e := range m.Engines {
		if t.brief < briefServices || e.Error != "" {
			engines = append(engines, engineLine(e))
		}
	}

	if len(returners) > 0 {
		t.addParagraph("Returners ", strings.Join(returners, "; "))
	}

	if len(engines) > 0 {
		t.addParagraph("Engines  ", strings.Join(engines, "; "))
	}
}

func returnerLine(r control.Returner) string {
	text := fmt.Sprintf("%s, %s wait", r.Name, thousands(int(r.Waiting)))
	if r.Error != "" {
		text += ", takes none"
	}
	if lost := r.Lost + r.Refused; lost > 0 {
		text += fmt.Sprintf(", did not get %s", thousands(int(lost)))
	}
	return text
}

func engineLine(e control.Engine) string {
	text := e.Name + " " + e.State
	if e.State == "elsewhere" {
		text = e.Name + " not on this node"
	}
	if e.Error != "" {
		text += ", has ended before"
	}
	return text
}
