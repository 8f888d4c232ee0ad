"""All answers of one commit reach the event loop in one call."""

import asyncio
import threading

import pytest

from turnout.service.storage.writer import AnswerQueue, JobFuture


def in_a_thread(job):
    thread = threading.Thread(target=job)
    thread.start()
    thread.join()


def test_all_answers_of_one_commit_wake_the_event_loop_once():
    async def main():
        settled, calls = AnswerQueue(), []
        loop = asyncio.get_running_loop()
        call, promised = loop.call_soon_threadsafe, [JobFuture(settled) for _ in range(5)]
        loop.call_soon_threadsafe = lambda *told: calls.append(1) or call(*told)

        def committed():
            assert all(each.set_running_or_notify_cancel() for each in promised)
            for number, each in enumerate(promised[:4]):
                each.set_result(number)
            promised[4].set_exception(ValueError("no"))

        in_a_thread(committed)
        assert [await each.answer for each in promised[:4]] == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="no"):
            await promised[4].answer
        assert len(calls) == 1
        later = JobFuture(settled)
        in_a_thread(lambda: later.set_result("later"))
        assert await later.answer == "later"
        assert len(calls) == 2

    asyncio.run(main())


def test_a_cancelled_write_does_not_run():
    async def main():
        early, late = JobFuture(AnswerQueue()), JobFuture(AnswerQueue())
        early.answer.cancel()
        assert not early.set_running_or_notify_cancel()
        assert early.cancelled()
        assert late.set_running_or_notify_cancel()
        late.answer.cancel()
        assert late.running()
        assert not late.cancelled()
        in_a_thread(lambda: late.set_result(1))
        await asyncio.sleep(0)
        assert late.answer.cancelled()

    asyncio.run(main())
