// Package cli talks to glusterd through the gluster command. It runs the command with a deadline,
// parses the XML of its answers within bounds, and sorts refusals into those that mean "already
// done", "try again" and "no".
//
// Three facts about gluster 10 shape it. The exit status says nothing when
// --xml is given (a refusal has opRet -1 and exit 0). Some answers are plain
// text in spite of --xml. And nearly every refusal has the same number
// (30800), so its text must be read. The only safe reaction to an unknown text is to look at the
// state again.
//
// [Client] has a method for each command. It runs them with a [command.Runner], which is
// [command.Exec] outside of tests.
package cli
