// Package units decides which process of a group runs which unit, without Kafka. A
// unit is what a process can run: a stream, or a lane of a job. Each process makes an [Offer] of its
// units ([Member]), the group's leader answers each offer with an [Assignment]
// ([Plan]).
//
// The plan keeps three promises. A unit is never given to a member while the member
// of the newest generation that has the unit still has it. Each unit that a member
// can run is held in the end, a lane once there is room for it. A unit that is held stays
// where it is unless a move makes the loads more equal.
package units
