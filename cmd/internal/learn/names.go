package learn

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

var (
	// wordOf matches a word of a name, such as user and Id of userId.
	wordOf = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+|[0-9]+`)
	// typeNames are names of the type of an event, the likeliest first. A name that is also
	// in plainTypes can be that of another type.
	typeNames = strings.Fields("eventtype actiontype activitytype operationtype " +
		"eventname actionname activityname operationname")
	plainTypes = strings.Fields("type action event kind operation activity category name")
	// inEvents are objects with members of the event, not of its user or object.
	inEvents = strings.Fields("action event activity operation attributes data payload properties details record log")
	// actorNames are names of the user who causes an event, accountNames of the account that
	// it concerns.
	actorNames   = strings.Fields("actor user subject principal member author by")
	accountNames = strings.Fields("account customer")
	// otherSide are words that make of such a name that of the event's object: target user.
	otherSide = strings.Fields("target affected object resource")
	// idNames are members that identify a user, the likeliest first.
	idNames = strings.Fields("id uuid guid gid sid key userid accountid memberid " +
		"email emailaddress mail login loginname username name")
)

// words returns the words of a name, in lower case.
func words(name string) []string {
	return strings.Fields(strings.ToLower(strings.Join(wordOf.FindAllString(name, -1), " ")))
}

// joined returns the last two names of a pointer in lower case, without separators.
func joined(pointer string) (above, last string) {
	names := strings.Split(strings.TrimSuffix(pointer, "/.tag"), "/")[1:] // .tag is that of a union
	if len(names) > 1 {
		above = strings.Join(words(names[len(names)-2]), "")
	}
	return above, strings.Join(words(names[len(names)-1]), "")
}

// rankType ranks a member as the type of an item; the likeliest has place 0. It returns false for a
// member that is no type, such as a name that differs from item to item.
func rankType(f *field) (place int, ok bool) {
	above, last := joined(f.pointer)
	if f.numbers || strings.Count(strings.TrimSuffix(f.pointer, "/.tag"), "/") > 2 {
		return 0, false
	}
	if i := slices.Index(typeNames, last); i >= 0 {
		return i, true
	}
	place = slices.Index(plainTypes, last)
	switch inside := above == "" || slices.Contains(inEvents, above); {
	case place < 0, last == "name" && (!inside || !repeats(f.values)):
		return 0, false
	case inside:
		return len(typeNames) + place, true
	}
	return otherType + place, true
}

// otherType is the first place of a member that is more likely the type of a user or object.
const otherType = 100

// rankKey ranks a member as the user of an item, as rankType does.
func rankKey(f *field) (place int, ok bool) {
	names := strings.Split(f.pointer, "/")[1:]
	group, rest := actor(words(names[len(names)-1]))
	if group < 0 && len(names) > 1 {
		if group, rest = actor(words(names[len(names)-2])); len(rest) > 0 {
			return 0, false
		}
		rest = words(names[len(names)-1])
	}
	at := slices.Index(idNames, strings.Join(rest, ""))
	if group < 0 || at < 0 && len(rest) > 0 {
		return 0, false
	}
	if len(rest) == 0 {
		at = slices.Index(idNames, "email") // the user itself
	}
	return group*len(idNames) + at, true
}

// actor returns 0 for a name of the user who causes an event, 1 for that of the account that it
// concerns, and the words after it; -1 for any other name.
func actor(name []string) (group int, rest []string) {
	for i, word := range slices.Backward(name) {
		switch {
		case i > 0 && slices.Contains(otherSide, name[i-1]), word == "by" && i == 0:
			return -1, nil
		case slices.Contains(actorNames, word):
			return 0, name[i+1:]
		case slices.Contains(accountNames, word):
			return 1, name[i+1:]
		}
	}
	return -1, nil
}

// candidates returns the fields that have a place, in the order of the places. Fields with
// several values come first.
func candidates(all []field, rank func(*field) (int, bool)) (found []*field) {
	places := make(map[*field]int)
	for i := range all {
		if place, ok := rank(&all[i]); ok {
			found = append(found, &all[i])
			if places[&all[i]] = place; !all[i].varies() {
				places[&all[i]] += 1000
			}
		}
	}
	slices.SortStableFunc(found, func(a, b *field) int { return cmp.Compare(places[a], places[b]) })
	return found
}

// doubts says why the first candidate may be wrong, "" for no doubt.
func doubts(found []*field) string {
	var others []string
	for _, f := range found[1:] {
		if f.varies() || !found[0].varies() {
			others = append(others, f.pointer)
		}
	}
	var said []string
	if !found[0].varies() {
		said = append(said, "it is the same in all items that were read")
	}
	if len(others) > 0 {
		said = append(said, "others may be right: "+strings.Join(others, ", "))
	}
	return strings.Join(said, "; ")
}

// findType finds the type of the items.
func (l *listing) findType(p profile) {
	found := candidates(l.fields, rankType)
	if len(found) == 0 {
		p.ask("EXPORT_ITEM_TYPE", "no member looks like the type of an item")
		return
	}
	p.set("EXPORT_ITEM_TYPE", found[0].pointer, "by its name, a text in every item")
	if place, _ := rankType(found[0]); found[0].varies() && place < otherType {
		found = slices.DeleteFunc(found, func(f *field) bool { place, _ := rankType(f); return place >= otherType })
	}
	p.ask("EXPORT_ITEM_TYPE", doubts(found))
}

// findKey finds the user of the items.
func (l *listing) findKey(p profile) {
	found := candidates(l.fields, rankKey)
	if len(found) == 0 {
		p.ask("KAFKA_KEY", "no member looks like the user or object of an item; "+
			"events without a key have no order among them")
		return
	}
	p.set("EXPORT_ITEM_SUBJECT", found[0].pointer, "")
	p.set("KAFKA_KEY", found[0].pointer, "")
	question := "a candidate by its name: events with the same value keep their order"
	if doubt := doubts(found); doubt != "" {
		question += "; " + doubt
		p.ask("EXPORT_ITEM_SUBJECT", "as KAFKA_KEY")
	}
	p.ask("KAFKA_KEY", question)
}
